import manifest from "../package.json" with { type: "json" };

/** Of this operator. */
export const { version } = manifest;
