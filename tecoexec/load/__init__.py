"""Load tests of an engine by MLPerf's LoadGen: ``tecoexec --scenario Server --target_qps 200 --latency_bound 20``.

LoadGen (MLCommons, package ``mlcommons-loadgen``, the extra ``loadgen``) issues queries by the rules of MLPerf
Inference, and measures. The zoo answers them with an engine, measures too, and compares both.
"""
