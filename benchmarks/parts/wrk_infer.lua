-- A request of one digit in JSON for wrk: wrk -t1 -c16 -d10s --latency -s wrk_infer.lua URL/v2/models/digits/infer
local values = {}
for place = 1, 3072 do values[place] = "0.5" end
local tensor = '{"name": "input", "shape": [1, 3, 32, 32], "datatype": "FP32", "data": [' .. table.concat(values, ",") .. "]}"

wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '{"inputs": [' .. tensor .. "]}"
