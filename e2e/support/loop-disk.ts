import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, rmSync, statSync, truncateSync, writeFileSync } from "node:fs";
import { eventually } from "./poll.ts";

/** Where the kernel takes limits of a device from, on cgroup v1: of the root group, as that is where the flusher is. */
const throttle = "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device";

/** Why a disk can't be made slow on this machine; undefined where it can. */
export function noSlowDisk(): string | undefined {
  return existsSync(throttle) ? undefined : `there is no ${throttle}: cgroup v1's blkio is not mounted`;
}

/** An ext4 of its own on a file, around the page cache of the disk below, so that it can be made slow and full. */
export class LoopDisk {
  readonly folder: string;
  readonly #file: string;
  readonly #device: string;

  private constructor(folder: string, file: string, device: string) {
    this.folder = folder;
    this.#file = file;
    this.#device = device;
  }

  /** @param folder is made; the file lies beside it, sparse. */
  static mount(folder: string, sizeBytes: number): LoopDisk {
    const file = `${folder}.disk`;
    writeFileSync(file, "");
    try {
      truncateSync(file, sizeBytes);
      // without a lazy initialisation that would write while a test measures
      run("mkfs.ext4", ["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", file]);
      const device = run("losetup", ["--find", "--show", "--direct-io=on", file]).trim();
      const disk = new LoopDisk(folder, file, device);
      try {
        mkdirSync(folder, { recursive: true });
        run("mount", [device, folder]);
        return disk;
      } catch (error) {
        run("losetup", ["--detach", device]);
        throw error;
      }
    } catch (error) {
      rmSync(file, { force: true });
      throw error;
    }
  }

  /** @param bytesPerSecond undefined: as fast as it is. */
  slow(bytesPerSecond: number | undefined): void {
    const { rdev } = statSync(this.#device);
    writeFileSync(throttle, `${rdev >> 8}:${rdev & 0xff} ${bytesPerSecond ?? 0}\n`);
  }

  /** Nothing of it is left. Processes in mount namespaces of their own must have ended. */
  async remove(): Promise<void> {
    if (noSlowDisk() === undefined) this.slow(undefined);
    await eventually(
      () => {
        run("umount", [this.folder]);
      },
      { deadlineMs: 20_000 },
    );
    run("losetup", ["--detach", this.#device]);
    rmSync(this.folder, { recursive: true, force: true });
    rmSync(this.#file, { force: true });
  }
}

function run(program: string, args: readonly string[]): string {
  return execFileSync(program, args, { encoding: "utf8" });
}
