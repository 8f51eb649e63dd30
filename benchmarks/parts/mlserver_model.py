"""The digits in MLServer, for a comparison; runs in an environment of MLServer's own, which cannot import the zoo."""

from __future__ import annotations

import numpy as np
import onnxruntime
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class Digits(MLModel):
    """A session of ONNX Runtime with the settings of target ``onnx`` on one core."""

    async def load(self) -> bool:
        """Open the model of the settings."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(self.settings.parameters.uri, options)
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Compute a request; MLServer has joined several where it batches."""
        images = NumpyCodec.decode_input(payload.inputs[0]).astype(np.float32, copy=False)
        (scores,) = self._session.run(None, {payload.inputs[0].name: images})
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("output", scores)])
