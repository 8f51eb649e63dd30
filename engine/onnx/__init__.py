"""The one door to ONNX protobufs."""
