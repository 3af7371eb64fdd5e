import { expect, it } from "vitest";
import { mountedDevices } from "./mount-view.ts";

const mountinfo = [
  "188 182 254:0 /rootfs / ro,nosuid,nodev,relatime - ext4 /dev/vda rw",
  "190 188 254:0 /shared/a /data rw,nosuid,nodev,relatime master:8 - ext4 /dev/vda rw",
  "91 190 0:43 / /data rw,relatime master:11 - overlay overlay rw",
  "",
].join("\n");

it("finds what is mounted, whatever lies above or below", () => {
  expect([...mountedDevices(mountinfo)]).toEqual(["254:0", "0:43", ""]);
});
