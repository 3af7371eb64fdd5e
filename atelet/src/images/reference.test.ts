import { expect, it } from "vitest";
import { parseReference } from "./reference.ts";

const digest = `sha256:${"0a".repeat(32)}`;

it.each([
  ["counter", "counter", undefined],
  ["reg.example/a/b:1.2", "reg.example/a/b", undefined],
  ["127.0.0.1:5000/a", "127.0.0.1:5000/a", undefined],
  [`127.0.0.1:5000/a:tag@${digest}`, "127.0.0.1:5000/a", digest],
])("takes %s apart", (reference, repository, expected) => {
  expect(parseReference(reference)).toEqual({ kind: "registry", reference, repository, digest: expected });
});

it("takes a local layout apart, whose folder may hold a colon or an @", () => {
  const reference = `oci:/abs/a:b@c@${digest}`;
  expect(parseReference(reference)).toEqual({ kind: "layout", reference, dir: "/abs/a:b@c", digest });
});

it.each([
  "",
  "-x",
  "--insecure",
  "a b",
  "a@sha256:12",
  "oci:/abs",
  `oci:rel@${digest}`,
  `oci:/a/../b@${digest}`,
  "/abs",
  "a\n",
])("refuses %j", (reference) => {
  expect(() => parseReference(reference)).toThrow(expect.objectContaining({ code: "IMAGE_INVALID" }));
});
