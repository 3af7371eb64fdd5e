import winston from "winston";
import { SubstrateError } from "./errors.ts";

export type Logger = winston.Logger;

/** Errors in metadata become {name, code, message, stack, cause}: winston alone prints them as {}. */
function plain(value: unknown): unknown {
  if (value instanceof SubstrateError && value.code !== "INTERNAL") return foreseen(value);
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

/**
 * An error whose code says what to do: where it was made says nothing. Of its causes, of which each hop between
 * processes adds some, only what they say beside the message.
 */
function foreseen({ name, code, message, cause: first }: SubstrateError): object {
  const texts = [message];
  const causes: string[] = [];
  for (let cause = first; cause instanceof Error; cause = cause.cause) {
    const { message: more } = cause;
    if (!texts.some((text) => text.includes(more) || more.includes(text))) causes.push(more);
    texts.push(more);
  }
  return { name, code, message, ...(causes.length === 0 ? {} : { causes }) };
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
