// Which Python runs the server, and whether dslint is in it.
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { homedir } from "node:os";
import { delimiter, isAbsolute, join } from "node:path";
import { promisify } from "node:util";
import * as vscode from "vscode";

const run = promisify(execFile);

/** The part of the API of the Python extension that is used here. */
interface PythonApi {
  environments: {
    getActiveEnvironmentPath(resource?: vscode.Uri): { path: string };
    resolveEnvironment(path: { path: string }): Promise<{ executable: { uri?: vscode.Uri } } | undefined>;
    onDidChangeActiveEnvironmentPath: vscode.Event<unknown>;
  };
}

/** The setting, else the environment that is chosen in the Python extension, else the `python` of the system. */
export async function interpreter(): Promise<string> {
  const folder = vscode.workspace.workspaceFolders?.[0]?.uri;
  const given = vscode.workspace.getConfiguration("dslint", folder).get<string>("interpreter", "");
  if (given) {
    return given.replaceAll("${workspaceFolder}", folder?.fsPath ?? "");
  }
  const environments = (await pythonApi())?.environments;
  const chosen = environments && (await environments.resolveEnvironment(environments.getActiveEnvironmentPath(folder)));
  return chosen?.executable.uri?.fsPath ?? onPath(process.platform === "win32" ? "python.exe" : "python3");
}

/** The program of this name in an absolute folder of PATH. Windows would first take one from the folder that is open. */
function onPath(name: string): string {
  const folders = (process.env.PATH ?? "").split(delimiter).filter((folder) => isAbsolute(folder));
  return folders.map((folder) => join(folder, name)).find((path) => existsSync(path)) ?? join(homedir(), name);
}

/** Calls back when another environment is chosen in the Python extension. */
export async function onOtherInterpreter(changed: () => void): Promise<vscode.Disposable | undefined> {
  return (await pythonApi())?.environments.onDidChangeActiveEnvironmentPath(changed);
}

async function pythonApi(): Promise<PythonApi | undefined> {
  return vscode.extensions.getExtension<PythonApi>("ms-python.python")?.activate();
}

/**
 * Options of Python with which it imports nothing from the folder that it runs in, where a project may have a `json.py` of its own, nor from
 * where PYTHONPATH says. That is -I, except that packages which the user installed for themselves (`pip install --user`) are found.
 */
export const SAFE = ["-E", "-P"];

/** Why this interpreter cannot run the server; undefined if it can. */
export async function obstacle(python: string): Promise<string | undefined> {
  try {
    await run(python, [...SAFE, "-c", "import dslint.server, pygls"]);
    return undefined;
  } catch (error) {
    const text = error instanceof Error && "stderr" in error ? String(error.stderr) || error.message : String(error);
    return text.trim().split("\n").at(-1);
  }
}
