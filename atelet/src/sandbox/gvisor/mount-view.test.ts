import { expect, it } from "vitest";
import { topmostDevice } from "./mount-view.ts";

const mountinfo = [
  "100 90 8:1 /rootfs /root rw - ext4 /dev/vda rw",
  "101 100 8:1 /warm/a/volumes/0 /root/data rw - ext4 /dev/vda rw",
  "102 100 8:1 /warm/a/volumes/1 /root/my/data rw - ext4 /dev/vda rw",
  "103 101 0:77 / /root/data rw - overlay overlay rw",
].join("\n");

it("finds what was mounted last at a place", () => {
  expect(topmostDevice(mountinfo, "/data")).toBe("0:77");
  expect(topmostDevice(mountinfo, "/my/data")).toBe("8:1");
  expect(topmostDevice(mountinfo, "/other")).toBeUndefined();
});
