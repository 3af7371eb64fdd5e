import { describe, expect, it } from "vitest";
import { publish, removeSlot, renderRuleset, routers, unpublish } from "./ruleset.ts";

const options = {
  podInterface: "eth0",
  podAddress: "10.0.0.2",
  denyCidrs: ["203.0.113.0/24"],
  resolvers: ["10.9.9.9"],
};

function chain(name: string): string[] {
  const last = renderRuleset(options).split(`chain ${name} {`).at(-1) ?? "";
  return last
    .slice(0, last.indexOf("}\n"))
    .split("\n")
    .map((line) => line.trim());
}

describe("renderRuleset", () => {
  it("checks routers before it accepts what is established, and denies before it lets out", () => {
    const rules = chain("c_forward");
    const at = (part: string): number => rules.findIndex((rule) => rule.includes(part));
    expect(at("@routers")).toBeGreaterThanOrEqual(0);
    expect(at("@routers")).toBeLessThan(at("established"));
    expect(at("@resolvers")).toBeLessThan(at("@denied"));
    expect(at("@denied")).toBeLessThan(rules.lastIndexOf('iifname "a*" oifname "eth0" accept'));
  });

  it("drops what keeps the interior address, so that an unknown link never speaks", () => {
    expect(chain("c_raw").at(-2)).toBe('iifname "a*" ip saddr 169.254.17.2 drop');
  });

  it("denies private ranges and those of the flags; keeps elements of actors and routers", () => {
    const text = renderRuleset(options);
    expect(text).toMatch(/add element ip ate denied \{ .*10\.0\.0\.0\/8.*192\.168\.0\.0\/16.*203\.0\.113\.0\/24 \}/);
    expect(text).not.toMatch(/(flush|delete) (set|map|table) ip ate ?(src|dn|blk|asleep|waking|routers|recent)?$/m);
  });

  it("makes no empty element lists, which nft refuses", () => {
    expect(renderRuleset({ ...options, resolvers: [] })).not.toContain("{  }");
    expect(routers([])).toBe("flush set ip ate routers\n");
    expect(publish([]) + unpublish([])).toBe("");
  });
});

describe("elements", () => {
  const mappings = [{ outerPort: 20_007, nodeAddress: "100.64.0.7", containerPort: 8080 }];

  it("maps a port, and lets it rest afterwards", () => {
    expect(publish(mappings)).toBe("add element ip ate dn { 20007 : 100.64.0.7 . 8080 }\n");
    expect(unpublish(mappings)).toBe("delete element ip ate dn { 20007 }\nadd element ip ate recent { 20007 }\n");
  });

  it("removes a slot whether or not it is there", () => {
    expect(removeSlot("a7", "100.64.0.7").split("\n").filter(Boolean)).toEqual([
      'add element ip ate blk { "a7" }',
      'add element ip ate src { "a7" : 100.64.0.7 }',
      'delete element ip ate src { "a7" }',
      "add element ip ate asleep { 100.64.0.7 }",
      "delete element ip ate asleep { 100.64.0.7 }",
      'add element ip ate blk { "a7" }',
      'delete element ip ate blk { "a7" }',
      'add element ip ate waking { "a7" }',
      'delete element ip ate waking { "a7" }',
    ]);
  });
});
