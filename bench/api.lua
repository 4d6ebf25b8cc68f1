-- What wrk sends: `wrk ... -- WHAT ARGUMENTS`; at the end its figures as one line of JSON.
-- new PIPELINE PREFIX: submissions, each under a key and for a month of its own
-- same PIPELINE KEY: one submission, again and again
-- get PATH [ETAG]

local what, first, second
local count = 0

function init(args)
  what, first, second = args[1], args[2], args[3]
end

local function submission(pipeline, key, month)
  local headers = { ["content-type"] = "application/json", ["idempotency-key"] = key }
  local body = string.format('{"pipeline":"%s","partitions":["%s"]}', pipeline, month)
  return wrk.format("POST", "/runs", headers, body)
end

function request()
  if what == "new" then
    count = count + 1
    local month = string.format("%04d-%02d", 1000 + math.floor(count / 12) % 9000, count % 12 + 1)
    return submission(first, second .. "/" .. count, month)
  elseif what == "same" then
    return submission(first, second, "2024-01")
  end
  return wrk.format("GET", first, second and { ["if-none-match"] = second } or {})
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '{"requests":%d,"seconds":%.6f,"p50_ms":%.3f,"p99_ms":%.3f,"refused":%d,"broken":%d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    errors.status, errors.connect + errors.read + errors.write + errors.timeout
  ))
end
