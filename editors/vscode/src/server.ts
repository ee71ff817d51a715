// Starts, restarts and stops the language server, and keeps it informed of the settings.
import * as vscode from "vscode";
import { DidChangeConfigurationNotification, LanguageClient, State } from "vscode-languageclient/node";
import { SAFE, interpreter, obstacle } from "./interpreter";
import { SELECTOR } from "./relevance";
import { settingsOf } from "./settings";

export class Server implements vscode.Disposable {
  private client: LanguageClient | undefined;
  private starting: Promise<void> | undefined;
  private readonly log = vscode.window.createOutputChannel("dslint", { log: true });
  private readonly changed = new vscode.EventEmitter<void>();

  /** Fires when the server has started or stopped. */
  readonly onDidChange = this.changed.event;

  get running(): boolean {
    return this.client?.state === State.Running;
  }

  /** Start the server, unless it runs or is about to. */
  start(): Promise<void> {
    this.starting ??= this.launch().catch((error: unknown) => {
      this.log.error(String(error));
    });
    return this.starting;
  }

  async restart(): Promise<void> {
    await this.stop();
    await this.start();
  }

  async stop(): Promise<void> {
    await this.starting;
    const client = this.client;
    this.client = this.starting = undefined;
    await client?.dispose();
    this.changed.fire();
  }

  /** Send the settings as they are now. */
  async configure(): Promise<void> {
    if (this.running) {
      await this.client?.sendNotification(DidChangeConfigurationNotification.type, { settings: { dslint: settingsOf() } });
      this.changed.fire();
    }
  }

  /** The answer to one of dslint's own requests; starts the server if it does not run. */
  async request<T>(method: string, params: unknown): Promise<T> {
    await this.start();
    if (!this.client || !this.running) {
      throw new Error("the language server does not run");
    }
    return this.client.sendRequest<T>(method, params);
  }

  showLog(): void {
    this.log.show(true);
  }

  dispose(): void {
    void this.stop();
    this.log.dispose();
    this.changed.dispose();
  }

  private async launch(): Promise<void> {
    const python = await interpreter();
    const missing = await obstacle(python);
    if (missing !== undefined) {
      this.log.error(`${python}: ${missing}`);
      void this.offerInstallation(python);
      return;
    }
    this.client = new LanguageClient(
      "dslint",
      "dslint",
      { command: python, args: [...SAFE, "-m", "dslint", "server"] },
      {
        documentSelector: SELECTOR,
        outputChannel: this.log,
        initializationOptions: { settings: settingsOf(), commands: ["dslint.explainRule", "dslint.showEstimate"] },
        middleware: {
          workspace: {
            configuration: (params) =>
              params.items.map((item) => settingsOf(item.scopeUri === undefined ? undefined : vscode.Uri.parse(item.scopeUri))),
          },
        },
      },
    );
    await this.client.start();
    this.changed.fire();
  }

  private async offerInstallation(python: string): Promise<void> {
    const install = "Install", choose = "Choose Interpreter", showLog = "Show Log";
    const answer = await vscode.window.showErrorMessage(
      `dslint is not installed with its language server in ${python}.`, install, choose, showLog,
    );
    if (answer === install) {
      const terminal = vscode.window.createTerminal("dslint");
      terminal.show();
      terminal.sendText(`"${python}" ${SAFE.join(" ")} -m pip install "deepspeed-lint[server]"`);
    } else if (answer === choose) {
      await vscode.commands.executeCommand("workbench.action.openSettings", "dslint.interpreter");
    } else if (answer === showLog) {
      this.showLog();
    }
  }
}
