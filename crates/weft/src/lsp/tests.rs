//! The server without I/O, on texts in the middle of an edit.

use super::server::Server;
use lsp_server::{Message, Notification, Request};
use serde_json::{Value, json};
use weft_control::library;
use weft_core::rng::Rng;

/// Texts of realistic size: the library, and the example.
fn texts() -> Vec<&'static str> {
    let shop = include_str!("../../../../examples/shop/network.weft");
    library::paths().filter_map(library::text).chain([shop]).collect()
}

const URI: &str = "file:///nowhere/a.weft";

struct Client {
    server: Server,
    version: i32,
}

impl Client {
    fn new() -> Self {
        let mut client = Self { server: Server::default(), version: 0 };
        let document = json!({ "uri": URI, "languageId": "weft", "version": 0, "text": "" });
        client.tell("textDocument/didOpen", json!({ "textDocument": document }));
        client
    }

    fn tell(&mut self, method: &str, params: Value) {
        let notice = Notification { method: method.to_owned(), params };
        assert!(self.server.handle(Message::Notification(notice)).is_empty());
    }

    /// Sends the whole new text, which clients may do.
    fn write(&mut self, text: &str) {
        self.version += 1;
        let document = json!({ "uri": URI, "version": self.version });
        self.tell(
            "textDocument/didChange",
            json!({ "textDocument": document, "contentChanges": [{ "text": text }] }),
        );
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        let request = Request { id: 1.into(), method: format!("textDocument/{method}"), params };
        match self.server.handle(Message::Request(request)).pop() {
            Some(Message::Response(answer)) => {
                assert!(answer.error.is_none(), "{method}: {:?}", answer.error);
                answer.result.unwrap_or_default()
            }
            other => panic!("no answer: {other:?}"),
        }
    }

    /// Sends every request that an editor makes when the user pauses.
    fn ask_all(&mut self, text: &str, offset: usize) {
        let before = text.get(..offset).unwrap_or(text);
        let line = before.matches('\n').count();
        let character = before.rsplit('\n').next().unwrap_or_default().encode_utf16().count();
        let position = json!({ "line": line, "character": character });
        let document = json!({ "uri": URI });
        for method in ["hover", "definition", "documentHighlight", "completion"] {
            self.ask(method, json!({ "textDocument": document, "position": position }));
        }
        let context = json!({ "includeDeclaration": true });
        self.ask("references", json!({ "textDocument": document, "position": position, "context": context }));
        for method in ["documentSymbol", "semanticTokens/full"] {
            self.ask(method, json!({ "textDocument": document }));
        }
        let options = json!({ "tabSize": 2, "insertSpaces": true });
        self.ask("formatting", json!({ "textDocument": document, "options": options }));
        let range = json!({ "start": { "line": 0, "character": 0 }, "end": position });
        self.ask(
            "codeAction",
            json!({ "textDocument": document, "range": range, "context": { "diagnostics": [] } }),
        );
        self.server.poll();
    }
}

/// An offset between two characters.
fn boundary(rng: &mut Rng, text: &str) -> usize {
    let at = rng.below(text.len() + 1);
    (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// Most texts are half-typed; a crash of the server would take all windows with it.
#[test]
fn half_typed_text_gets_answers() {
    let (mut client, mut rng) = (Client::new(), Rng::from_seed(1));
    for text in texts() {
        // Skip the manual page at the head; the program after it is typed from its beginning.
        let body = text.find("\nCREATE").map_or(0, |at| at + 1);
        for _ in 0..40 {
            let end = body + boundary(&mut rng, &text[body..]);
            client.write(&text[..end]);
            client.ask_all(&text[..end], end);
        }
    }
}

/// Damaged text at any offset, and requests at any offset, would crash the server.
#[test]
fn damaged_text_gets_answers() {
    const PIECES: &[&str] = &[
        "(",
        ")",
        "'",
        "\"",
        ";",
        "END;",
        "ON ",
        ".",
        ":=",
        "\u{1d11e}",
        "\r\n",
        "/*",
        "CREATE ",
        "\0",
        "->",
        "{",
    ];
    let (mut client, mut rng) = (Client::new(), Rng::from_seed(2));
    let texts = texts();
    for text in &texts {
        for _ in 0..40 {
            let mut damaged = (*text).to_owned();
            for _ in 0..=rng.below(3) {
                let (from, to) = (boundary(&mut rng, &damaged), boundary(&mut rng, &damaged));
                let (from, to) = (from.min(to), from.max(to).min(from.min(to) + 30));
                let to = (to..=damaged.len()).find(|at| damaged.is_char_boundary(*at)).unwrap_or(from);
                match rng.below(3) {
                    0 => damaged.replace_range(from..to, ""),
                    1 => damaged.insert_str(from, PIECES[rng.below(PIECES.len())]),
                    _ => {
                        let other = texts[rng.below(texts.len())];
                        let start = boundary(&mut rng, other);
                        let end = start + boundary(&mut rng, &other[start..]).min(40);
                        damaged.insert_str(from, other.get(start..end).unwrap_or_default());
                    }
                }
            }
            client.write(&damaged);
            let at = boundary(&mut rng, &damaged);
            client.ask_all(&damaged, at);
        }
    }
}

/// Changes come as ranges; if the server's text differs from the client's, it reports faults that do not exist.
#[test]
fn range_edits_keep_client_text() {
    let (mut client, mut rng) = (Client::new(), Rng::from_seed(3));
    let mut text = String::from("-- \u{1d11e}\u{e9}\r\nCREATE LISTENER l ON tcp 'a:1';\n");
    client.write(&text);
    let position = |text: &str, at: usize| {
        let before = &text[..at];
        let character = before.rsplit('\n').next().unwrap_or_default().encode_utf16().count();
        json!({ "line": before.matches('\n').count(), "character": character })
    };
    for n in 0..200 {
        let (a, b) = (boundary(&mut rng, &text), boundary(&mut rng, &text));
        let (from, to) = (a.min(b), a.max(b).min(a.min(b) + 3));
        let to = (to..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(from);
        // There is no position between `\r` and `\n`.
        let splits = |at: usize| text[..at].ends_with('\r') && text[at..].starts_with('\n');
        if splits(from) || splits(to) {
            continue;
        }
        let new = ["", "x", "\n", "\u{1f600}", "';"][rng.below(5)];
        let range = json!({ "start": position(&text, from), "end": position(&text, to) });
        client.tell(
            "textDocument/didChange",
            json!({
                "textDocument": { "uri": URI, "version": n },
                "contentChanges": [{ "range": range, "text": new }],
            }),
        );
        text.replace_range(from..to, new);
        assert_eq!(client.server.text("/nowhere/a.weft"), Some(text.as_str()));
    }
}

/// A malformed request must be refused, and the next one served.
#[test]
fn invalid_requests_are_refused() {
    let mut client = Client::new();
    for params in [Value::Null, json!({}), json!({ "textDocument": 5 })] {
        let request = Request { id: 1.into(), method: "textDocument/hover".to_owned(), params };
        let answer = client.server.handle(Message::Request(request)).pop();
        assert!(matches!(answer, Some(Message::Response(answer)) if answer.error.is_some()));
    }
    client.tell("textDocument/didChange", json!({ "nonsense": true }));
    client.tell("textDocument/didClose", json!({ "textDocument": { "uri": "file:///never/opened.weft" } }));
    client.ask_all("", 0);
    let position = json!({ "line": 4_000_000_000_u32, "character": u32::MAX });
    let away = json!({ "textDocument": { "uri": URI }, "position": position });
    client.ask("hover", away);
}
