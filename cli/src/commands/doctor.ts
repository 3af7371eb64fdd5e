import { Command, Option } from "commander";
import { withConnection } from "../config.ts";
import { Connection, type ConnectionFlags } from "../connection.ts";
import { type Finding } from "../doctor/finding.ts";
import { aggregatedApi, apiServer, kinds, leases, nodes } from "../doctor/installation.ts";
import { actors, templates } from "../doctor/objects.ts";
import { pods } from "../doctor/pods.ts";
import { rights } from "../doctor/rights.ts";
import { examples } from "../examples.ts";
import { ProgramExit } from "../program-exit.ts";
import { exitCodes } from "../failure.ts";
import { type Terminal } from "../terminal.ts";

type DoctorFlags = ConnectionFlags & { systemNamespace: string; output?: "json" };

export function doctorCommand(terminal: Terminal): Command {
  return withConnection(new Command("doctor").summary("find what is wrong with an installation"))
    .description(
      "Look at an installation from outside: the API, the operator, the nodes, Templates and actors that are not Ready, and\n" +
        "your rights. Each finding says what to do. Exit code 1 when something does not work.",
    )
    .option("--system-namespace <name>", "where Substrate's parts have their Leases", "substrate-system")
    .addOption(new Option("-o, --output <format>", "print the findings for programs").choices(["json"]))
    .addHelpText("after", examples(["kubectl ate doctor", "before you ask somebody else"]))
    .action(async (flags: DoctorFlags) => {
      const connection = new Connection(flags);
      const server = await apiServer(connection, Date.now());
      const found = await Promise.all([
        kinds(connection),
        aggregatedApi(connection),
        leases(connection, flags.systemNamespace, server.nowMs),
        nodes(connection),
        pods(connection, flags.systemNamespace),
        templates(connection),
        actors(connection),
        rights(connection),
      ]);
      const findings = [...server.findings, ...found.flat()];
      if (flags.output === "json") terminal.stdout.write(`${JSON.stringify(findings, null, 2)}\n`);
      else terminal.stdout.write(report(findings));
      if (findings.some(({ level }) => level === "problem")) throw new ProgramExit(exitCodes.operationFailed.code);
    });
}

const signs = { ok: "ok     ", warning: "warning", problem: "PROBLEM" } as const;

function report(findings: readonly Finding[]): string {
  const lines = findings.map(({ level, what, fix }) => {
    const advice = fix === undefined ? "" : fix.replace(/^/gm, "           ");
    return `${signs[level]}  ${what}\n${advice === "" ? "" : `${advice}\n`}`;
  });
  const count = (level: Finding["level"]): string => {
    const number = findings.filter((finding) => finding.level === level).length;
    return `${number} ${level}${number === 1 ? "" : "s"}`;
  };
  return `${lines.join("")}${count("problem")}, ${count("warning")}\n`;
}
