-- Health of a substrate.run Actor. An actor that sleeps is healthy: the next request wakes it.

-- Ready is False, but the cause may pass without anybody doing anything, or with what is applied next.
local waits = {
  Pending = true, TemplateMissing = true, TemplateNotReady = true, SecretMissing = true, SnapshotMissing = true,
  NodeUnavailable = true, NoRoom = true, NoNode = true, RequestsOpen = true, OperationInProgress = true,
  Deleting = true,
}

local status = obj.status or {}
if (status.observedGeneration or -1) ~= obj.metadata.generation then
  return { status = "Progressing", message = "The operator has not taken note of it yet" }
end
local ready
for _, condition in ipairs(status.conditions or {}) do
  if condition.type == "Stalled" and condition.status == "True" then
    return { status = "Degraded", message = condition.message }
  end
  if condition.type == "Ready" then
    ready = condition
  end
end
if ready == nil then
  return { status = "Progressing", message = "The operator has not said yet whether it is ready" }
end
local message = ready.reason .. ": " .. (ready.message or "")
if ready.status == "True" then
  if ready.reason == "Suspended" then
    return { status = "Suspended", message = message }
  end
  return { status = "Healthy", message = message }
end
if ready.status == "Unknown" or waits[ready.reason] then
  return { status = "Progressing", message = message }
end
return { status = "Degraded", message = message }
