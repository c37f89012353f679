//! `weft lsp` as an editor uses it: the real binary at the other end of two pipes.

use crate::node::{Folder, weft};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

const NETWORK: &str = "-- 𝄞 what the network does
CREATE TYPE cart FROM PROTO 'cart.proto';
IMPORT 'limits.weft';
CREATE LISTENER frontend ON tcp '127.0.0.1:0';
CREATE CLUSTER cart TO '127.0.0.1:1';
CREATE CHAIN shop ON frontend -> cart METHOD 'shop.Cart/*' AS
  only (user := req.user, name = '𝄞') AS first -> only AS second;
END;
";

const LIMITS: &str = "-- Lets through one user alone.
CREATE ELEMENT only (name TEXT = 'alice') ON rpc (user TEXT) AS
  TABLE seen (user TEXT(64) PRIMARY KEY, n I64 = 0) MAX 100 ROWS EVICT OLDEST; -- how often
  ON REQUEST
    UPSERT seen KEY (user) SET n = n + 1;
    LET text = name || '!';
    SELECT * FROM input WHERE usr = name ELSE ABORT PERMISSION_DENIED text;
END;
";

/// A client that records the whole conversation.
struct Client {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    folder: String,
    next_id: u32,
    record: String,
}

impl Client {
    fn start(folder: &Folder) -> Self {
        let mut command = weft(folder);
        command.arg("lsp").env("XDG_CACHE_HOME", folder.0.join("cache"));
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the binary can be started");
        let (stdin, stdout) =
            (child.stdin.take().expect("it is piped"), child.stdout.take().expect("it is piped"));
        let folder = folder.0.display().to_string();
        let (stdout, record) = (BufReader::new(stdout), String::new());
        let mut client = Self { child, stdin, stdout, folder, next_id: 0, record };
        client.ask("initialize", json!({ "capabilities": {} }));
        client.notify("initialized", json!({}));
        client
    }

    fn uri(&self, name: &str) -> String {
        format!("file://{}/{name}", self.folder)
    }

    fn send(&mut self, message: &Value) {
        let text = message.to_string();
        write!(self.stdin, "Content-Length: {}\r\n\r\n{text}", text.len()).expect("the server reads");
        self.stdin.flush().expect("the server reads");
    }

    fn receive(&mut self) -> Value {
        let mut length = 0;
        loop {
            let mut line = String::new();
            assert!(self.stdout.read_line(&mut line).expect("the server writes") > 0, "the server is gone");
            match line.trim_end().split_once(": ") {
                Some(("Content-Length", n)) => length = n.parse().expect("a number"),
                Some(_) => {}
                None => break,
            }
        }
        let mut body = vec![0; length];
        self.stdout.read_exact(&mut body).expect("the server writes");
        serde_json::from_slice(&body).expect("it is JSON")
    }

    fn note(&mut self, sign: &str, what: &Value) {
        let text = serde_json::to_string_pretty(what).expect("it is JSON");
        let text = text.replace(&self.folder, "FOLDER").replace(env!("CARGO_PKG_VERSION"), "VERSION");
        let _ = writeln!(self.record, "{sign} {text}");
    }

    /// Sends a notification.
    fn notify(&mut self, method: &str, params: Value) {
        self.note(&format!("--> {method}"), &params);
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    /// Sends a request and returns its answer.
    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.next_id += 1;
        let id = self.next_id;
        self.note(&format!("--> {method}"), &params);
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        loop {
            let message = self.receive();
            if message["id"] == id {
                let answer = message.get("result").or(message.get("error")).cloned().unwrap_or_default();
                self.note("<--", &answer);
                return answer;
            }
        }
    }

    /// The next diagnostics that the server publishes.
    fn next_diagnostics(&mut self) -> Value {
        let message = self.receive();
        assert_eq!(message["method"], "textDocument/publishDiagnostics", "{message}");
        self.note("<-- publishDiagnostics", &message["params"]);
        message["params"].clone()
    }

    fn open(&mut self, name: &str, text: &str) {
        let uri = self.uri(name);
        self.notify(
            "textDocument/didOpen",
            json!({ "textDocument": { "uri": uri, "languageId": "weft", "version": 1, "text": text } }),
        );
    }

    /// Sends a request for the first occurrence of `word` in `text`, `inside` units into it.
    fn at(&mut self, method: &str, (name, text): (&str, &str), word: &str) -> Value {
        let before = &text[..text.find(word).expect("the word is there")];
        let line = before.matches('\n').count();
        let character = before.rsplit('\n').next().unwrap_or_default().encode_utf16().count();
        let mut params = json!({
            "textDocument": { "uri": self.uri(name) },
            "position": { "line": line, "character": character + 1 },
        });
        if method == "textDocument/references" {
            params["context"] = json!({ "includeDeclaration": true });
        }
        self.ask(method, params)
    }

    fn stop(mut self) -> Option<i32> {
        self.ask("shutdown", Value::Null);
        self.notify("exit", Value::Null);
        self.child.wait().expect("it ends").code()
    }
}

/// An editor would show nothing, or something else than `weft check`.
#[test]
fn editor_gets_diagnostics_and_hover() {
    let folder = Folder::new();
    folder.write("limits.weft", LIMITS);
    let mut client = Client::start(&folder);
    client.open("network.weft", NETWORK);
    // The fault is in a file that is not open.
    let next_diagnostics = [client.next_diagnostics(), client.next_diagnostics()];
    let faulty = next_diagnostics
        .iter()
        .find(|params| params["uri"].as_str().is_some_and(|uri| uri.ends_with("limits.weft")));
    let faulty = faulty.expect("the imported file is reported");
    assert_eq!(faulty["diagnostics"][0]["code"], "W0205");
    // Now the file is open, and fixed by the action that the diagnostic offers.
    client.open("limits.weft", LIMITS);
    client.next_diagnostics();
    let range = faulty["diagnostics"][0]["range"].clone();
    let uri = client.uri("limits.weft");
    let actions = client.ask(
        "textDocument/codeAction",
        json!({ "textDocument": { "uri": uri }, "range": range, "context": { "diagnostics": [] } }),
    );
    let edit = actions[0]["edit"]["changes"][&uri][0].clone();
    assert_eq!(edit["newText"], "user");
    client.notify(
        "textDocument/didChange",
        json!({
            "textDocument": { "uri": uri, "version": 2 },
            "contentChanges": [{ "range": edit["range"], "text": edit["newText"] }],
        }),
    );
    assert_eq!(client.next_diagnostics()["diagnostics"], json!([]));
    let limits = LIMITS.replace("usr", "user");
    let network = ("network.weft", NETWORK);
    for word in
        ["only AS second", "first", "frontend ->", "METHOD", "user, name", "limits.weft", "cart.proto"]
    {
        client.at("textDocument/hover", network, word);
        client.at("textDocument/definition", network, word);
    }
    let text = client.at("textDocument/hover", ("limits.weft", &limits), "text;");
    assert!(text["contents"]["value"].as_str().is_some_and(|text| text.contains("LET text TEXT")), "{text}");
    let field = client.at("textDocument/definition", network, "user, name");
    assert!(field["uri"].as_str().is_some_and(|uri| uri.ends_with("cart.proto")), "{field}");
    let uses = client.at("textDocument/references", ("limits.weft", &limits), "name || ");
    assert_eq!(uses.as_array().map(Vec::len), Some(4), "{uses}");
    let (limits_uri, network_uri) = (client.uri("limits.weft"), client.uri("network.weft"));
    client.ask("textDocument/documentSymbol", json!({ "textDocument": { "uri": limits_uri } }));
    client.ask("textDocument/semanticTokens/full", json!({ "textDocument": { "uri": network_uri } }));
    client.notify("textDocument/didSave", json!({ "textDocument": { "uri": limits_uri } }));
    client.notify("textDocument/didClose", json!({ "textDocument": { "uri": limits_uri } }));
    // The file on the disk counts again, and still has the fault.
    assert_eq!(client.next_diagnostics()["diagnostics"][0]["code"], "W0205");
    let unknown = client.ask("textDocument/unheardOf", json!({}));
    assert_eq!(unknown["code"], -32601);
    let record = client.record.clone();
    assert_eq!(client.stop(), Some(0));
    insta::assert_snapshot!("conversation", record);
}

/// Completions would not fit the context, or lack names that are only on the disk.
#[test]
fn completions_fit_the_context() {
    let folder = Folder::new();
    folder.write("limits.weft", LIMITS);
    let mut client = Client::start(&folder);
    client.open("network.weft", NETWORK);
    let mut version = 1;
    let mut check = |text: &str, wanted: &[&str], unwanted: &[&str]| {
        version += 1;
        let (before, after) = text.split_once('|').expect("a cursor");
        let (uri, text) = (client.uri("network.weft"), format!("{before}{after}"));
        client.notify(
            "textDocument/didChange",
            json!({ "textDocument": { "uri": uri, "version": version }, "contentChanges": [{ "text": text }] }),
        );
        let line = before.matches('\n').count();
        let character = before.rsplit('\n').next().unwrap_or_default().encode_utf16().count();
        let at =
            json!({ "textDocument": { "uri": uri }, "position": { "line": line, "character": character } });
        let answer = client.ask("textDocument/completion", at);
        let items = answer.as_array().cloned().unwrap_or_default();
        let is_offered = |label: &&&str| items.iter().any(|item| item["label"] == **label);
        assert_eq!(wanted.iter().find(|label| !is_offered(label)), None, "not offered in {text}: {answer}");
        assert_eq!(unwanted.iter().find(is_offered), None, "offered in {text}");
    };
    check("IMPORT '|';", &["limits.weft", "library/elements/acl.weft"], &["network.weft"]);
    check("CREATE TYPE t FROM PROTO '|", &["cart.proto"], &["limits.weft"]);
    let network =
        |stages: &str| NETWORK.split("  only").next().unwrap_or_default().to_owned() + stages + "\nEND;\n";
    check(&network("|"), &["only"], &["cart"]);
    check(&network("only (user := req.|)"), &["user", "object_id"], &["name"]);
    assert_eq!(client.stop(), Some(0));
}

/// Formatting in an editor would differ from `weft fmt`, or change a text with errors.
#[test]
fn formatting_matches_weft_fmt() {
    let folder = Folder::new();
    let mut client = Client::start(&folder);
    let text = "create listener   l on tcp 'a:1';\n-- kept\nCREATE CLUSTER c TO 'b:1';\n";
    client.open("a.weft", text);
    client.open("b.weft", "CREATE LISTENER l ON;\n");
    let mut formatted = |name: &str| {
        let uri = client.uri(name);
        client.ask(
            "textDocument/formatting",
            json!({ "textDocument": { "uri": uri }, "options": { "tabSize": 8, "insertSpaces": false } }),
        )
    };
    let edits = formatted("a.weft");
    assert_eq!(edits[0]["newText"], "CREATE LISTENER l ON tcp 'a:1';\n");
    assert_eq!(
        edits[0]["range"],
        json!({ "start": { "line": 0, "character": 0 }, "end": { "line": 1, "character": 0 } })
    );
    assert_eq!(formatted("b.weft"), Value::Null);
    assert_eq!(client.stop(), Some(0));
}

/// Library elements are not on the disk: an editor would be sent to a file that does not exist.
#[test]
fn library_element_definition_opens() {
    let folder = Folder::new();
    let mut client = Client::start(&folder);
    let text = "IMPORT 'library/elements/acl.weft';\nCREATE LISTENER l ON tcp 'a:1';\nCREATE CLUSTER k TO 'b:1';\n\
                CREATE CHAIN c ON l -> k AS acl; END;\n";
    client.open("a.weft", text);
    for word in ["acl; END", "library/"] {
        let found = client.at("textDocument/definition", ("a.weft", text), word);
        let path = found["uri"].as_str().and_then(|uri| uri.strip_prefix("file://")).expect("it is a file");
        assert!(
            std::fs::read_to_string(Path::new(path)).expect("it is there").contains("CREATE ELEMENT acl")
        );
    }
    let hover = client.at("textDocument/hover", ("a.weft", text), "acl; END");
    let text = hover["contents"]["value"].as_str().unwrap_or_default();
    assert!(
        text.contains("lets only users with write permission through") && text.contains("may abort the call"),
        "{text}"
    );
    assert_eq!(client.stop(), Some(0));
}
