import winston from "winston";

export type Logger = winston.Logger;

/** Errors in metadata become {name, code, message, stack, cause}: winston alone prints them as {}. */
function plain(value: unknown): unknown {
  if (value instanceof Error) {
    return {
      name: value.name,
      ...("code" in value ? { code: value.code } : {}),
      message: value.message,
      stack: value.stack,
      ...(value.cause === undefined ? {} : { cause: plain(value.cause) }),
    };
  }
  if (typeof value === "bigint") return Number(value);
  return value;
}

const serialize = winston.format((info) => {
  for (const key of Object.keys(info)) info[key] = plain(info[key]);
  return info;
});

/**
 * JSON lines on stderr. `part` names the process; children add fields (`log.child({ actor })`).
 * One line per operation, with every phase time in milliseconds, is the rule.
 */
export function createLogger(part: string, level = "info"): Logger {
  return winston.createLogger({
    level,
    defaultMeta: { part },
    format: winston.format.combine(serialize(), winston.format.timestamp(), winston.format.json()),
    transports: [new winston.transports.Console({ stderrLevels: Object.keys(winston.config.npm.levels) })],
  });
}
