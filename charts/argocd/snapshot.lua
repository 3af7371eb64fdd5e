-- Health of a substrate.run Snapshot. Tags and golden snapshots have condition Ready; of an actor's generations, Argo CD
-- sees those that are in the store.

local status = obj.status or {}
if (status.observedGeneration or -1) ~= obj.metadata.generation then
  return { status = "Progressing", message = "The operator has not taken note of it yet" }
end
local ready, durable
for _, condition in ipairs(status.conditions or {}) do
  if condition.type == "Stalled" and condition.status == "True" then
    return { status = "Degraded", message = condition.message }
  end
  if condition.type == "Ready" then
    ready = condition
  end
  if condition.type == "Durable" then
    durable = condition
  end
end
if ready == nil and durable == nil then
  return { status = "Progressing", message = "The operator has not said yet whether it can be used" }
end
local decisive = ready or durable
local message = decisive.reason .. ": " .. (decisive.message or "")
if decisive.status == "True" then
  return { status = "Healthy", message = message }
end
if status.storageState == "SNAPSHOT_STORAGE_STATE_FAILED" or status.storageState == "SNAPSHOT_STORAGE_STATE_LOST"
    or decisive.reason == "GoldenFailed" then
  return { status = "Degraded", message = message }
end
-- a tag that failed for now is tried again
return { status = "Progressing", message = message }
