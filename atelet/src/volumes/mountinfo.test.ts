import { expect, it } from "vitest";
import { parseMountinfo } from "./mountinfo.ts";

const text = `22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
48 27 0:43 / /var/lib/at\\040e/actors/1/volumes/data/mnt rw,relatime - overlay overlay rw,lowerdir=layers/2/data:base,upperdir=layers/3/data,workdir=layers/3/work,redirect_dir=on
49 27 0:44 / /var/lib/at\\040e/actors/1/volumes/data/mnt/deeper ro - overlay overlay ro,lowerdir=../../../origins/o/volumes/data/data:base
50 27 0:45 / /var/lib/at\\040elsewhere rw - tmpfs tmpfs rw
`;

it("finds what is mounted in a folder, the deepest first, with its layers as they were named", () => {
  expect(parseMountinfo(text, "/var/lib/at e")).toEqual([
    {
      target: "/var/lib/at e/actors/1/volumes/data/mnt/deeper",
      layers: ["../../../origins/o/volumes/data/data", "base"],
    },
    { target: "/var/lib/at e/actors/1/volumes/data/mnt", layers: ["layers/3/data", "layers/2/data", "base"] },
  ]);
});
