import { type ActorStatus } from "@substrate/crds/index.ts";
import { expect, it } from "vitest";
import { LateEvents } from "./late-events.ts";
import { type EventFacts } from "./status-events.ts";

const missing: EventFacts = { type: "Warning", reason: "TemplateMissing", message: "create it" };
const crashed: EventFacts = { type: "Warning", reason: "Crashed", message: "ended" };

function ready(reason: string): Partial<ActorStatus> {
  const lastTransitionTime = "2026-01-01T00:00:00Z";
  return { conditions: [{ type: "Ready", status: "False", reason, message: "", lastTransitionTime }] };
}

it("tells at once what is abnormal, and a missing Template once when it lasts", () => {
  const late = new LateEvents();
  expect(late.due("a", [crashed, missing], ready("TemplateMissing"), 0)).toEqual({
    events: [crashed],
    recheckAfterMs: 5_000,
  });
  expect(late.due("a", [], ready("TemplateMissing"), 4_000)).toEqual({ events: [], recheckAfterMs: 1_000 });
  expect(late.due("a", [], ready("TemplateMissing"), 5_000)).toEqual({ events: [missing] });
  expect(late.due("a", [], ready("TemplateMissing"), 9_000)).toEqual({ events: [] });
});

it("regression: deleting a Template together with its actors left a warning for each", () => {
  const late = new LateEvents();
  late.due("a", [missing], ready("TemplateMissing"), 0);
  expect(late.due("a", [], ready("Asleep"), 2_000)).toEqual({ events: [] });
  expect(late.due("a", [], ready("TemplateMissing"), 9_000)).toEqual({ events: [] });
  late.due("b", [missing], ready("TemplateMissing"), 0);
  late.forget("b");
  expect(late.due("b", [], ready("TemplateMissing"), 9_000)).toEqual({ events: [] });
});
