import { renewalMs } from "@substrate/lib/certificates.ts";
import { describe, expect, it } from "vitest";
import { advance, bundleOf, encode, firstAuthorities, formatAuthorities, parseAuthorities } from "./authorities.ts";

const settings = { prefix: "substrate", certificateLifetimeMs: 60_000, authorityLifetimeMs: 600_000 };
const spreadMs = 20_000;

describe("authorities", () => {
  it("follow each other: trusted, then signing, and the old one trusted until all that it signed has ended", async () => {
    const first = await firstAuthorities(settings);
    const dueMs = renewalMs(first.signer.cert);
    expect(await advance(first, settings, false, dueMs - 1)).toBe(first);

    const trusted = await advance(first, settings, false, dueMs);
    expect(trusted.signer).toBe(first.signer);
    expect(trusted.next?.signsAtMs).toBe(dueMs + spreadMs);
    expect(bundleOf(trusted)).toBe(first.signer.cert + (trusted.next?.cert ?? ""));
    expect(await advance(trusted, settings, true, dueMs + spreadMs - 1)).toBe(trusted);

    const signing = await advance(trusted, settings, false, dueMs + spreadMs);
    expect(signing.signer.cert).toBe(trusted.next?.cert);
    const untilMs = dueMs + spreadMs + settings.certificateLifetimeMs + spreadMs;
    expect(signing.previous).toEqual({ cert: first.signer.cert, untilMs });
    expect(bundleOf(signing)).toContain(first.signer.cert);
    expect(await advance(signing, settings, false, untilMs - 1)).toBe(signing);

    const last = await advance(signing, settings, false, untilMs);
    expect(bundleOf(last)).toBe(signing.signer.cert);
  });

  it("change early when a person asks, one change at a time", async () => {
    const first = await firstAuthorities(settings);
    const asked = await advance(first, settings, true, Date.now());
    expect(asked.next).toBeDefined();
    expect(await advance(asked, settings, true, Date.now())).toBe(asked);
  });

  it("are the same after a Secret", async () => {
    const next = await advance(await firstAuthorities(settings), settings, true, 1_800_000_000_000);
    const { annotations, data } = formatAuthorities(next);
    const meta = { apiVersion: "v1", kind: "Secret" };
    expect(parseAuthorities({ ...meta, metadata: { name: "substrate-ca", annotations }, data })).toEqual(next);
    const foreign = { ...meta, metadata: { name: "substrate-ca", namespace: "s" }, data: encode({ "tls.crt": "x" }) };
    expect(() => parseAuthorities(foreign)).toThrow("Secret s/substrate-ca has no tls.crt and tls.key: delete it");
  });
});
