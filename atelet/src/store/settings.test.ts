import { expect, it } from "vitest";
import { storeSettings } from "./settings.ts";

it("reads a folder and a bucket", () => {
  expect(storeSettings("a", "file:///var/store/")).toEqual({
    kind: "folder",
    name: "a",
    url: "file:///var/store/",
    path: "/var/store",
  });
  expect(storeSettings("b", "s3://my.bucket-1?region=eu-central-1")).toMatchObject({
    bucket: "my.bucket-1",
    prefix: "",
    endpoint: undefined,
    region: "eu-central-1",
    pathStyle: false,
  });
  const files = { credentialsDir: "/c", caPath: "/ca.crt" };
  expect(storeSettings("c", "s3://b-1/a/b/?endpoint=http://127.0.0.1:9000/", files)).toMatchObject({
    bucket: "b-1",
    prefix: "a/b/",
    endpoint: "http://127.0.0.1:9000",
    region: "us-east-1",
    pathStyle: true,
    ...files,
  });
  expect(storeSettings("d", "s3://b-1?endpoint=https://s3.example.com&pathStyle=false")).toMatchObject({
    endpoint: "https://s3.example.com",
    pathStyle: false,
  });
});

it.each([
  ["http://x", "file:///absolute/folder or s3://BUCKET"],
  ["file:///", "file:///absolute/folder or s3://BUCKET"],
  ["file://host/abs", "file:///absolute/folder"],
  ["/abs", "file:///absolute/folder"],
  ["", "file:///absolute/folder"],
  ["s3://", "name of a bucket"],
  ["s3://B_x", "name of a bucket"],
  ["s3://bucket:9000", "name of a bucket"],
  ["s3://bucket/a//b", "a prefix has"],
  ["s3://bucket/.hidden", "a prefix has"],
  ["s3://bucket?endpont=http://x", "there is no parameter endpont"],
  ["s3://bucket?region=a&region=b", "region is there twice"],
  ["s3://bucket?endpoint=x:9000", "endpoint=https://HOST"],
  ["s3://bucket?endpoint=http://x/bucket", "endpoint=https://HOST"],
  ["s3://bucket?pathStyle=yes", "pathStyle=true or"],
  ["s3://bucket?region=EU!", "write region=NAME"],
])("refuses %s", (url, fix) => {
  expect(() => storeSettings("x", url)).toThrow(fix);
});

it("names no secret that stands in a URL, and takes files for buckets only", () => {
  let message = "";
  try {
    storeSettings("x", "s3://key:hush@bucket");
  } catch (error) {
    message = String(error);
  }
  expect(message).toContain("--store-credentials");
  expect(message).not.toContain("hush");
  expect(() => storeSettings("x", "file:///a", { caPath: "/ca" })).toThrow("takes no --store-ca");
});
