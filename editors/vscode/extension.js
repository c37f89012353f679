// Starts `weft lsp` for the files of a window; all else is the server's.
const { workspace } = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

function activate() {
  const command = workspace.getConfiguration("weft").get("path", "weft");
  const server = { command, args: ["lsp"] };
  const watched = workspace.createFileSystemWatcher("**/*.{weft,proto}");
  client = new LanguageClient("weft", "Weft", server, {
    documentSelector: [{ language: "weft" }],
    synchronize: { fileEvents: watched },
  });
  return client.start();
}

function deactivate() {
  return client?.stop();
}

module.exports = { activate, deactivate };
