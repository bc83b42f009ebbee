-- wrk script: builds one fixed request (BENCH_PIPELINE of them, BENCH_BODY bytes posted) once, and prints one JSON line
-- at the end. It defines no request(), so wrk runs no Lua per request.
local depth = tonumber(os.getenv("BENCH_PIPELINE") or "1")

function init(args)
  local body = tonumber(os.getenv("BENCH_BODY") or "0")
  if body > 0 then
    wrk.method = "POST"
    wrk.body = string.rep("x", body)
    wrk.headers["Content-Type"] = "text/plain"
  end
  if depth > 1 then
    local all = string.rep(wrk.format(), depth)
    wrk.format = function() return all end
  end
end

function done(summary, latency, requests)
  local e = summary.errors
  local p = function(q) return latency:percentile(q) end
  io.write(string.format(
    "JSON {\"requests\":%d,\"duration_us\":%d,\"bytes\":%d,\"connect\":%d,\"read\":%d,\"write\":%d,\"status\":%d,\"timeout\":%d,\"mean\":%.2f,\"p50\":%d,\"p90\":%d,\"p99\":%d,\"p999\":%d,\"max\":%d}\n",
    summary.requests, summary.duration, summary.bytes, e.connect, e.read, e.write, e.status, e.timeout,
    latency.mean, p(50), p(90), p(99), p(99.9), latency.max))
end
