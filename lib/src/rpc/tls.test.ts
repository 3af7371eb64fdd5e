import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { CertificateAuthority, isSignedBy, certificatesIn, type KeyPair } from "../certificates.ts";
import { createLogger } from "../log.ts";
import { followTlsFiles, TlsSource } from "./tls.ts";

const log = createLogger("test");
log.silent = true;

describe("followTlsFiles", () => {
  let folder: string;
  const stop = new AbortController();
  const file = (name: string): string => join(folder, name);
  const write = (pair: KeyPair): void => {
    writeFileSync(file("tls.crt"), pair.cert);
    writeFileSync(file("tls.key"), pair.key);
  };

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "tls-"));
    vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
  });
  afterEach(() => {
    stop.abort();
    vi.useRealTimers();
    rmSync(folder, { recursive: true, force: true });
  });

  it("uses what the files have become, but never a certificate with another's key", async () => {
    const authority = await CertificateAuthority.create("ca", 60_000);
    const [first, second] = await Promise.all([1, 2].map(() => authority.issue({ subject: "CN=a" }, 30_000)));
    if (first === undefined || second === undefined) throw new Error("no certificates");
    writeFileSync(file("ca.crt"), authority.pair.cert);
    write(first);
    const files = { caFile: file("ca.crt"), certFile: file("tls.crt"), keyFile: file("tls.key") };
    const source = followTlsFiles(files, log, stop.signal);
    const renewals: string[] = [];
    source.onRenewal(({ cert }) => renewals.push(cert.toString()));
    writeFileSync(file("tls.crt"), second.cert);
    vi.advanceTimersByTime(1_000);
    expect(source.current.cert.toString()).toBe(first.cert);
    write(second);
    vi.advanceTimersByTime(1_000);
    expect(source.current.cert.toString()).toBe(second.cert);
    expect(renewals).toEqual([second.cert]);
    rmSync(file("tls.crt"));
    vi.advanceTimersByTime(1_000);
    expect(source.current.cert.toString()).toBe(second.cert);
  });
});

describe("a certificate", () => {
  it("ends with its authority at the latest, and is known to be signed by it alone", async () => {
    const authority = await CertificateAuthority.create("ca", 10_000);
    const namesake = await CertificateAuthority.create("ca", 10_000);
    const { cert, key } = await authority.issue({ subject: "CN=a" }, 60_000);
    const source = new TlsSource({ ca: Buffer.from(""), cert: Buffer.from(cert), key: Buffer.from(key) });
    expect(source.expiresMs).toBe(Math.floor(authority.expiresMs / 1_000) * 1_000);
    const [leaf] = certificatesIn(cert);
    if (leaf === undefined) throw new Error("no certificate");
    expect(isSignedBy(leaf, namesake.pair.cert + authority.pair.cert)).toBe(true);
    expect(isSignedBy(leaf, namesake.pair.cert)).toBe(false);
  });
});
