import { expect, it } from "vitest";
import { parseManifest } from "./documents.ts";

const sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
const index = { sizeBytes: 7312, sha256 };

// As earlier builds have written them: what is stored stays readable. Never change these, add to them.
const written = {
  1: `{"format":1,"actor":{"uid":"0f8fad5b-d9cb-469f-a165-70867728950e","namespace":"default","name":"counter"},"generation":7,"epoch":3,"revision":"counter-5d8f","imageDigest":"sha256:00","fidelity":"Memory","sandbox":{"class":"gvisor","runtime":"release-20250101.0-ate1","architecture":"amd64"},"createdAt":"2026-01-01T00:00:00.000Z","sizeBytes":20,"files":[{"name":"checkpoint.img","sizeBytes":5,"sha256":"${sha256}"},{"name":"pages.img","sizeBytes":15,"sha256":"${sha256}"},{"name":"pages_meta.img","sizeBytes":0,"sha256":"${sha256}"}]}`,
  2: `{"format":2,"actor":{"uid":"7c9e6679-7425-40de-944b-e07fc1f90ae7","namespace":"default","name":"before"},"generation":1,"epoch":1,"revision":"counter-5d8f","imageDigest":"sha256:00","fidelity":"Rootfs","envDigest":"e1","sandbox":{"class":"gvisor","runtime":"release-20250101.0-ate1","architecture":"amd64"},"createdAt":"2026-01-01T00:00:00.000Z","volumes":[{"name":"data"}],"rootfsTar":true,"sizeBytes":20,"files":[{"name":"rootfs.tar","sizeBytes":15,"sha256":"${sha256}"},{"name":"volume-data.tar","sizeBytes":5,"sha256":"${sha256}"}],"copyOf":{"actorUid":"0f8fad5b-d9cb-469f-a165-70867728950e","generation":7,"epoch":3}}`,
  3: `{"format":3,"actor":{"uid":"0f8fad5b-d9cb-469f-a165-70867728950e","namespace":"default","name":"counter"},"generation":8,"epoch":3,"revision":"counter-5d8f","imageDigest":"sha256:00","fidelity":"Memory","sandbox":{"class":"gvisor","runtime":"release-20250101.0-ate1","architecture":"amd64"},"createdAt":"2026-01-01T00:00:00.000Z","sizeBytes":8197,"files":[{"name":"checkpoint.img","sizeBytes":5,"sha256":"${sha256}"}],"pages":{"sizeBytes":8192,"storedBytes":4099,"index":{"sizeBytes":7312,"sha256":"${sha256}"},"packs":[{"key":"ns-1/0f8fad5b-d9cb-469f-a165-70867728950e/packs/8-3-d41d8cd9-0"},{"key":"ns-1/7c9e6679-7425-40de-944b-e07fc1f90ae7/packs/1-1-00b204e9-0","at":"ns-1/16fd2706-8baf-433b-82eb-8c7fada847da/packs/7c9e6679-7425-40de-944b-e07fc1f90ae7-1-1-00b204e9-0"}]}}`,
} as const;

it.each([1, 2, 3] as const)("reads format %i as it was written", (format) => {
  const text = written[format];
  expect(parseManifest("m", Buffer.from(text))).toEqual(JSON.parse(text));
});

it("wants the pages of format 3, and keys that stay in the cluster's prefix", () => {
  const read = (change: object) => () => {
    const { pages, ...rest } = JSON.parse(written[3]) as { pages: object };
    return parseManifest("m", Buffer.from(JSON.stringify({ ...rest, pages: { ...pages, ...change } })));
  };
  expect(read({}).call(undefined).pages?.index).toEqual(index);
  for (const change of [
    { index: undefined },
    { packs: [{ key: "ns-1/a/packs/../../b" }] },
    { packs: [{ key: "ns-1/a/packs/1-1-0", at: "/etc/passwd" }] },
    { packs: [{ key: "ns-1/a/1-1/pages.img" }] },
  ]) {
    expect(read(change)).toThrow(expect.objectContaining({ code: "SNAPSHOT_DAMAGED" }) as Error);
  }
});
