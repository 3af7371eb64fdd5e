import { inject } from "vitest";

declare module "vitest" {
  // what vitest.config.ts takes from the environment
  interface ProvidedContext {
    /** MEMORY_CYCLES: suspends of each series of engine/memory.full.ts. */
    memoryCycles: string;
  }
}

export interface MemorySettings {
  cycles: number;
}

export function memorySettings(): MemorySettings {
  const cycles = Number(inject("memoryCycles"));
  if (!Number.isInteger(cycles) || cycles < 1) throw new Error(`MEMORY_CYCLES: not a number of 1 or more`);
  return { cycles };
}
