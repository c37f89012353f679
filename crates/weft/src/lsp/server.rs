//! The server without I/O: a message in, messages out.

use super::answers::{self, Cursor};
use super::position::offset_of;
use super::programs::Programs;
use crate::job;
use lsp_server::{ErrorCode, Message, Notification, Request, RequestId, Response, ResponseError};
use lsp_types::notification::{self as notice, Notification as _};
use lsp_types::request::{self as ask, Request as _};
use lsp_types::{
    CodeActionProviderCapability, CompletionOptions, HoverProviderCapability, OneOf,
    SemanticTokensFullOptions, SemanticTokensOptions, ServerCapabilities, TextDocumentPositionParams,
    TextDocumentSyncCapability, TextDocumentSyncKind, TextDocumentSyncOptions, TextDocumentSyncSaveOptions,
    Uri,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The capabilities of the server, for the answer to `initialize`.
pub(super) fn abilities() -> Value {
    let sync = TextDocumentSyncOptions {
        open_close: Some(true),
        change: Some(TextDocumentSyncKind::INCREMENTAL),
        save: Some(TextDocumentSyncSaveOptions::Supported(true)),
        ..TextDocumentSyncOptions::default()
    };
    let abilities = ServerCapabilities {
        text_document_sync: Some(TextDocumentSyncCapability::Options(sync)),
        hover_provider: Some(HoverProviderCapability::Simple(true)),
        completion_provider: Some(CompletionOptions {
            trigger_characters: Some([".", "'", "/", "("].map(str::to_owned).to_vec()),
            ..CompletionOptions::default()
        }),
        definition_provider: Some(OneOf::Left(true)),
        references_provider: Some(OneOf::Left(true)),
        document_highlight_provider: Some(OneOf::Left(true)),
        document_symbol_provider: Some(OneOf::Left(true)),
        code_action_provider: Some(CodeActionProviderCapability::Simple(true)),
        document_formatting_provider: Some(OneOf::Left(true)),
        semantic_tokens_provider: Some(
            SemanticTokensOptions {
                legend: answers::legend(),
                full: Some(SemanticTokensFullOptions::Bool(true)),
                ..SemanticTokensOptions::default()
            }
            .into(),
        ),
        ..ServerCapabilities::default()
    };
    json!({ "capabilities": abilities, "serverInfo": { "name": "weft", "version": env!("CARGO_PKG_VERSION") } })
}

/// One client's texts, and the diagnostics that it has.
#[derive(Debug, Default)]
pub(super) struct Server {
    programs: Programs,
    /// The programs have changed since the last diagnostics.
    is_stale: bool,
    /// The diagnostics that the client has, by the URI of the file.
    published: BTreeMap<String, Value>,
}

impl Server {
    /// Handles a message and returns the answers. Poll with [`Server::poll`] before waiting for the next message.
    pub(super) fn handle(&mut self, message: Message) -> Vec<Message> {
        match message {
            Message::Request(request) => vec![Message::Response(self.answer(request))],
            Message::Notification(notice) => {
                self.take(notice);
                Vec::new()
            }
            // This server sends no requests.
            Message::Response(_) => Vec::new(),
        }
    }

    /// The diagnostics that have changed.
    pub(super) fn poll(&mut self) -> Vec<Message> {
        if !std::mem::take(&mut self.is_stale) {
            return Vec::new();
        }
        self.programs.refresh();
        let now = answers::diagnostics(&self.programs);
        let mut messages = Vec::new();
        for uri in self.published.keys().filter(|uri| !now.contains_key(*uri)) {
            messages.push(publish(&json!({ "uri": uri, "diagnostics": [] })));
        }
        for (uri, params) in &now {
            if self.published.get(uri) != Some(params) {
                messages.push(publish(params));
            }
        }
        self.published = now;
        messages
    }

    /// An open text by the name of its file.
    #[cfg(test)]
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.programs.text(name)
    }

    /// Handles a notification, such as an opened or changed document.
    fn take(&mut self, notice: Notification) {
        match notice.method.as_str() {
            notice::DidOpenTextDocument::METHOD => {
                if let Some(params) = params::<notice::DidOpenTextDocument>(notice.params) {
                    let document = params.text_document;
                    self.programs.open(document.uri, document.version, document.text);
                }
            }
            notice::DidChangeTextDocument::METHOD => {
                if let Some(params) = params::<notice::DidChangeTextDocument>(notice.params) {
                    let document = params.text_document;
                    self.programs.change(&document.uri, document.version, params.content_changes);
                }
            }
            notice::DidCloseTextDocument::METHOD => {
                if let Some(params) = params::<notice::DidCloseTextDocument>(notice.params) {
                    self.programs.close(&params.text_document.uri);
                }
            }
            // Files that are not open may have changed: messages, imports.
            notice::DidSaveTextDocument::METHOD | notice::DidChangeWatchedFiles::METHOD => {
                self.programs.forget_all()
            }
            _ => return,
        }
        self.is_stale = true;
    }

    /// Answers a request of the client.
    fn answer(&mut self, Request { id, method, params }: Request) -> Response {
        self.programs.refresh();
        match method.as_str() {
            ask::HoverRequest::METHOD => self.with::<ask::HoverRequest>(id, params, |server, params| {
                server.at(&params.text_document_position_params).and_then(|cursor| answers::hover(&cursor))
            }),
            ask::GotoDefinition::METHOD => self.with::<ask::GotoDefinition>(id, params, |server, params| {
                let cursor = server.at(&params.text_document_position_params)?;
                answers::definition(&server.programs, &cursor)
            }),
            ask::References::METHOD => self.with::<ask::References>(id, params, |server, params| {
                let with_declaration = params.context.include_declaration;
                let cursor = server.all_at(&params.text_document_position);
                Some(answers::references(&server.programs, &cursor, with_declaration))
            }),
            ask::DocumentHighlightRequest::METHOD => {
                self.with::<ask::DocumentHighlightRequest>(id, params, |server, params| {
                    server
                        .at(&params.text_document_position_params)
                        .map(|cursor| answers::highlights(&cursor))
                })
            }
            ask::DocumentSymbolRequest::METHOD => {
                self.with::<ask::DocumentSymbolRequest>(id, params, |server, params| {
                    server.in_file(&params.text_document.uri).map(|cursor| answers::symbols(&cursor))
                })
            }
            ask::Completion::METHOD => self.with::<ask::Completion>(id, params, |server, params| {
                server.at(&params.text_document_position).map(|cursor| answers::completion(&cursor))
            }),
            ask::Formatting::METHOD => self.with::<ask::Formatting>(id, params, |server, params| {
                server.in_file(&params.text_document.uri).and_then(|cursor| answers::formatting(&cursor))
            }),
            ask::CodeActionRequest::METHOD => {
                self.with::<ask::CodeActionRequest>(id, params, |server, params| {
                    let cursor = server.in_file(&params.text_document.uri)?;
                    Some(answers::actions(&cursor, &params.text_document.uri, params.range))
                })
            }
            ask::SemanticTokensFullRequest::METHOD => {
                self.with::<ask::SemanticTokensFullRequest>(id, params, |server, params| {
                    server.in_file(&params.text_document.uri).map(|cursor| answers::tokens(&cursor))
                })
            }
            _ => refused(id, ErrorCode::MethodNotFound, format!("`{method}` is not served")),
        }
    }

    /// Parses the parameters of a request, and answers it.
    fn with<R: ask::Request>(
        &self,
        id: RequestId,
        params: Value,
        answer: impl FnOnce(&Self, R::Params) -> R::Result,
    ) -> Response
    where
        R::Params: DeserializeOwned,
        R::Result: Serialize,
    {
        match serde_json::from_value::<R::Params>(params) {
            Ok(params) => match job::part(|| serde_json::to_value(answer(self, params))) {
                Ok(Ok(answer)) => Response::new_ok(id, answer),
                Ok(Err(error)) => refused(id, ErrorCode::InternalError, error.to_string()),
                Err(broken) => refused(id, ErrorCode::InternalError, broken.diagnostic().message),
            },
            Err(error) => refused(id, ErrorCode::InvalidParams, error.to_string()),
        }
    }

    /// The cursor in the first program that includes the file.
    fn in_file(&self, uri: &Uri) -> Option<Cursor<'_>> {
        let (root, file) = self.programs.with(uri).into_iter().next()?;
        Some(Cursor { root, file, offset: 0 })
    }

    fn at(&self, at: &TextDocumentPositionParams) -> Option<Cursor<'_>> {
        self.all_at(at).into_iter().next()
    }

    /// The cursor in every program that includes the file.
    fn all_at(&self, at: &TextDocumentPositionParams) -> Vec<Cursor<'_>> {
        let found = self.programs.with(&at.text_document.uri).into_iter();
        found
            .map(|(root, file)| {
                let offset = offset_of(root.program.analysis.sources.file(file), at.position);
                Cursor { root, file, offset }
            })
            .collect()
    }
}

/// The parameters of a notification; None if they are malformed.
fn params<N: notice::Notification>(params: Value) -> Option<N::Params>
where
    N::Params: DeserializeOwned,
{
    // A notification has no answer that could carry an error.
    serde_json::from_value(params).ok()
}

fn publish(params: &Value) -> Message {
    Message::Notification(Notification::new(notice::PublishDiagnostics::METHOD.to_owned(), params))
}

fn refused(id: RequestId, code: ErrorCode, message: String) -> Response {
    let error = ResponseError { code: code as i32, message, data: None };
    Response { id, result: None, error: Some(error) }
}
