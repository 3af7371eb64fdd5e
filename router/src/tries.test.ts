import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { Holding } from "./holding.ts";
import { Ticket } from "./ticket.ts";
import { Tries } from "./tries.ts";
import { Upstream } from "./upstream.ts";

const limits = { headersTimeoutMs: 1_000, connectTimeoutMs: 1_000 };
const endpoint = { portName: "http", containerPort: 8080, address: "127.0.0.1", port: 40_000 };

describe("Tries", () => {
  beforeEach(() => {
    vi.useFakeTimers();
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  function ticketOf(holding: Holding): Ticket {
    const ticket = new Ticket(holding, new Upstream(endpoint, limits));
    ticket.close();
    return ticket;
  }

  function holdingOfNode(): Holding {
    return new Holding({ nodeName: "node-1", report: () => true }, "uid-1", limits);
  }

  test("a program that refuses for longer than the patience is given up", () => {
    const tries = new Tries(3_000);
    const ticket = ticketOf(holdingOfNode());
    expect(tries.failed(ticket)).toBeDefined();
    vi.advanceTimersByTime(2_900);
    expect(tries.failed(ticket)).toBeDefined();
    vi.advanceTimersByTime(200);
    expect(tries.failed(ticket)).toBeUndefined();
  });

  test("refusals while the atelet is away are not the program's: the patience begins when it is back", () => {
    const tries = new Tries(3_000);
    const holding = holdingOfNode();
    const ticket = ticketOf(holding);
    tries.failed(ticket);
    holding.detach();
    vi.advanceTimersByTime(4_000);
    expect(tries.failed(ticket)).toBeDefined();
    holding.announce();
    vi.advanceTimersByTime(2_900);
    expect(tries.failed(ticket)).toBeDefined();
    vi.advanceTimersByTime(200);
    expect(tries.failed(ticket)).toBeUndefined();
  });
});
