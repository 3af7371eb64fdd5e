/**
 * Of the atelet's Node. V8 counts a buffer that is handed to a thread as that thread's memory, and begins a collection of
 * its whole heap when that grows far beyond what its objects take: with every pack of 16 MiB. Below this size, in MiB, it
 * doesn't.
 */
export const HEAP_OPTIONS = ["--initial-old-space-size=96"];
