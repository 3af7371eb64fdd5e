import manifest from "../package.json" with { type: "json" };

/** Of this plugin. */
export const { version } = manifest;
