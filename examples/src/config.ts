/** The folder that relative paths of a command line mean: npm runs scripts in the project's, wherever it was called. */
export function callersFolder(environment: NodeJS.ProcessEnv = process.env): string {
  return environment.INIT_CWD ?? process.cwd();
}
