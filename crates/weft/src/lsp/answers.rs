//! Answers requests of a language client from the front end's analysis.

use super::position::{position_of, range_of};
use super::programs::{Programs, Root};
use crate::source;
use crate::source::FILE_BYTES_MAX;
use lsp_types::{
    CodeAction, CodeActionKind, CodeActionOrCommand, CompletionItem, CompletionItemKind, CompletionResponse,
    CompletionTextEdit, DiagnosticRelatedInformation, DiagnosticSeverity, DiagnosticTag, DocumentHighlight,
    DocumentHighlightKind, DocumentSymbol, DocumentSymbolResponse, Documentation, GotoDefinitionResponse,
    Hover, HoverContents, Location, MarkupContent, MarkupKind, NumberOrString, PublishDiagnosticsParams,
    Range, SemanticToken, SemanticTokenModifier, SemanticTokenType, SemanticTokens, SemanticTokensLegend,
    SemanticTokensResult, SymbolKind as Kind, TextEdit, Uri, WorkspaceEdit,
};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use weft_io::file;
use weft_lang::ast::Kind as ItemKind;
use weft_lang::diagnostic::{Diagnostic, Severity, code};
use weft_lang::editor::complete::{Candidate, CandidateKind, PathKind, complete};
use weft_lang::editor::index::{Index, SymbolId, SymbolKind, Use};
use weft_lang::editor::tokens::{TokenClass, classes};
use weft_lang::editor::{field_at, hover as hovers};
use weft_lang::source::{FileId, SourceFile, SourceMap, Span};
use weft_opt::cost::cost;
use weft_opt::lower::{LowerOptions, lower_with_lines};

/// The location that a request is about.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'p> {
    pub(super) root: &'p Root,
    pub(super) file: FileId,
    /// The byte at the cursor.
    pub(super) offset: u32,
}

impl<'p> Cursor<'p> {
    fn sources(&self) -> &'p SourceMap {
        &self.root.program.analysis.sources
    }

    fn source(&self) -> &'p SourceFile {
        self.sources().file(self.file)
    }

    fn index(&self) -> &'p Index {
        &self.root.program.index
    }
}

// ---- diagnostics -----------------------------------------------------------------------------------------------

/// The parameters of `publishDiagnostics` for each file, by its URI. A fault that several programs share appears once.
pub(super) fn diagnostics(programs: &Programs) -> BTreeMap<String, Value> {
    let mut by_uri: BTreeMap<String, PublishDiagnosticsParams> = BTreeMap::new();
    for (name, root) in programs.whole() {
        let sources = &root.program.analysis.sources;
        // Include files without diagnostics: a client with an open file needs the empty list to clear its old ones.
        let known = sources.files().map(|(_, file)| file.name()).chain([name]);
        for (file, document) in known.filter_map(|file| Some((file, programs.document(file)?))) {
            let empty =
                || PublishDiagnosticsParams::new(document.uri.clone(), Vec::new(), Some(document.version));
            by_uri.entry(document.uri.as_str().to_owned()).or_insert_with(empty);
            debug_assert!(programs.document(file).is_some());
        }
        for diagnostic in &root.diagnostics {
            let file = diagnostic.span().map_or(name, |span| sources.file(span.file).name());
            let Some(uri) = programs.uri(file).or_else(|| programs.uri(name)) else { continue };
            let version = programs.document(file).map(|document| document.version);
            let of_file = by_uri
                .entry(uri.as_str().to_owned())
                .or_insert_with(|| PublishDiagnosticsParams::new(uri, Vec::new(), version));
            let shown = shown(programs, sources, diagnostic);
            if !of_file.diagnostics.contains(&shown) {
                of_file.diagnostics.push(shown);
            }
        }
    }
    let value = |params| serde_json::to_value(params).expect("it has no map with odd keys");
    by_uri.into_iter().map(|(uri, params)| (uri, value(params))).collect()
}

/// Converts a diagnostic to the protocol's form, with its notes and help in the message.
fn shown(programs: &Programs, sources: &SourceMap, diagnostic: &Diagnostic) -> lsp_types::Diagnostic {
    let range = diagnostic.span().map_or_else(Range::default, |span| range_of(sources.file(span.file), span));
    let primary = diagnostic.labels.iter().find(|label| label.primary);
    let label = primary.map(|label| label.text.as_str()).filter(|text| !text.is_empty());
    let help = diagnostic.help.iter().map(|help| format!("help: {help}"));
    let facts = label.map(str::to_owned).into_iter().chain(diagnostic.notes.iter().cloned()).chain(help);
    let message: Vec<String> = std::iter::once(diagnostic.message.clone()).chain(facts).collect();
    let others = diagnostic
        .labels
        .iter()
        .filter(|label| !primary.is_some_and(|primary| std::ptr::eq(primary, *label)));
    let related: Vec<_> = others
        .filter_map(|label| {
            let location = location(programs, sources, label.span)?;
            Some(DiagnosticRelatedInformation { location, message: label.text.clone() })
        })
        .collect();
    let is_unused = [code::UNUSED_NAME, code::UNREACHABLE].contains(&diagnostic.code);
    lsp_types::Diagnostic {
        range,
        severity: Some(match diagnostic.severity {
            Severity::Error => DiagnosticSeverity::ERROR,
            Severity::Warning => DiagnosticSeverity::WARNING,
        }),
        code: Some(NumberOrString::String(diagnostic.code.0.to_owned())),
        source: Some("weft".to_owned()),
        message: message.join("\n"),
        related_information: (!related.is_empty()).then_some(related),
        tags: is_unused.then(|| vec![DiagnosticTag::UNNECESSARY]),
        ..lsp_types::Diagnostic::default()
    }
}

fn location(programs: &Programs, sources: &SourceMap, span: Span) -> Option<Location> {
    let file = sources.file(span.file);
    Some(Location { uri: programs.uri(file.name())?, range: range_of(file, span) })
}

/// The fixes of diagnostics that a range touches.
pub(super) fn actions(cursor: &Cursor<'_>, uri: &Uri, range: Range) -> Vec<CodeActionOrCommand> {
    let file = cursor.source();
    let touches = |span: Span| {
        let found = range_of(file, span);
        span.file == cursor.file && found.start <= range.end && range.start <= found.end
    };
    let mut actions = Vec::new();
    for diagnostic in &cursor.root.diagnostics {
        let Some(fix) = diagnostic.fix.as_ref().filter(|fix| fix.span.file == cursor.file) else { continue };
        if !touches(fix.span) && !diagnostic.span().is_some_and(touches) {
            continue;
        }
        let title = match diagnostic.help.first() {
            Some(help) => help.clone(),
            None if fix.replacement.is_empty() => "remove it".to_owned(),
            None => format!("write `{}`", fix.replacement.trim()),
        };
        let edit = TextEdit { range: range_of(file, fix.span), new_text: fix.replacement.clone() };
        #[expect(clippy::mutable_key_type, reason = "the type is the protocol's; its key does not change")]
        let changes = HashMap::from([(uri.clone(), vec![edit])]);
        actions.push(CodeActionOrCommand::CodeAction(CodeAction {
            title,
            kind: Some(CodeActionKind::QUICKFIX),
            edit: Some(WorkspaceEdit::new(changes)),
            is_preferred: Some(true),
            ..CodeAction::default()
        }));
    }
    actions
}

// ---- names -----------------------------------------------------------------------------------------------------

/// Describes a name or keyword, with its cost if it is an element in a chain.
pub(super) fn hover(cursor: &Cursor<'_>) -> Option<Hover> {
    let found = hovers::hover(&cursor.root.program, cursor.file, cursor.offset)?;
    let mut value = found.markdown;
    if let Some(symbol) = found.symbol {
        value += &costs(cursor.root, symbol);
    }
    let contents = HoverContents::Markup(MarkupContent { kind: MarkupKind::Markdown, value });
    Some(Hover { contents, range: Some(range_of(cursor.source(), found.span)) })
}

/// The worst-case cost of an element's instances, of one instance, or of the instances with a table.
fn costs(root: &Root, symbol: SymbolId) -> String {
    let (analysis, index) = (&root.program.analysis, &root.program.index);
    let symbol = index.symbol(symbol);
    let element = match symbol.kind {
        SymbolKind::Item(ItemKind::Element) => Some(symbol.whole),
        SymbolKind::Item(ItemKind::Table) => symbol.owner.map(|owner| index.symbol(owner).whole),
        SymbolKind::Instance => symbol.of.map(|element| index.symbol(element).whole),
        _ => None,
    };
    let (Some(element), true) = (element, root.is_good) else { return String::new() };
    let network = &analysis.network;
    let mut out = String::new();
    for (at, chain) in network.chains.iter().enumerate() {
        let is_meant = |at: usize| {
            let instance = &chain.instances[at];
            let is_it = symbol.kind != SymbolKind::Instance || instance.span == symbol.whole;
            is_it && network.elements[instance.element].span == element
        };
        let meant: Vec<usize> = (0..chain.instances.len()).filter(|at| is_meant(*at)).collect();
        if meant.is_empty() {
            continue;
        }
        let lowered = lower_with_lines(network, at, &LowerOptions { workers: 1 }, &analysis.sources);
        let Ok(program) = lowered else { continue };
        let costs = cost(&program);
        for found in meant.iter().filter_map(|at| costs.elements.get(*at)) {
            let ops = [
                (found.ops.open, "open"),
                (found.ops.request, "request"),
                (found.ops.response, "response"),
                (found.ops.close, "close"),
            ];
            let ops: Vec<String> =
                ops.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} in {what}")).collect();
            let mut parts = vec![format!("operations: {}", ops.join(", "))];
            parts.extend((found.table_bytes > 0).then(|| format!("{} bytes of tables", found.table_bytes)));
            parts.extend(
                (found.call_bytes > 0).then(|| format!("{} bytes for each open call", found.call_bytes)),
            );
            out += &format!("\n- in `{}.{}` at most {}", chain.name, found.name, parts.join("; "));
        }
    }
    if out.is_empty() { out } else { out + "\n" }
}

/// The declaration of a name: in a program, in an imported file, or in a `.proto` file.
pub(super) fn definition(programs: &Programs, cursor: &Cursor<'_>) -> Option<GotoDefinitionResponse> {
    let (sources, index) = (cursor.sources(), cursor.index());
    if let Some(found) = index.at(cursor.file, cursor.offset) {
        let at = location(programs, sources, index.symbol(found.symbol).span)?;
        return Some(GotoDefinitionResponse::Scalar(at));
    }
    let holds =
        |span: Span| span.file == cursor.file && span.start <= cursor.offset && cursor.offset <= span.end;
    let program = &cursor.root.program.analysis.program;
    if let Some((_, name)) = program.imports.iter().find(|(path, _)| holds(path.span)) {
        return Some(GotoDefinitionResponse::Scalar(Location {
            uri: programs.uri(name)?,
            range: Range::default(),
        }));
    }
    if let Some(proto) = protos(cursor.root).find(|proto| holds(proto.span)) {
        let uri = programs.uri(proto.files.first()?)?;
        return Some(GotoDefinitionResponse::Scalar(Location { uri, range: Range::default() }));
    }
    let found = index.field_at(cursor.file, cursor.offset)?;
    let at = found.path.segments.iter().position(|part| holds(part.span))?;
    let (message, field) = field_at(&cursor.root.program, found, at + 1)?;
    protos(cursor.root)
        .find_map(|proto| declared(programs, &proto.files, &message.name, &field.name))
        .map(GotoDefinitionResponse::Scalar)
}

/// A `.proto` file that a program names.
struct Proto {
    span: Span,
    /// The names of the file and of its imports.
    files: Vec<String>,
}

/// The `.proto` files that the program's types name.
fn protos(root: &Root) -> impl Iterator<Item = Proto> {
    let analysis = &root.program.analysis;
    analysis.program.items.iter().filter_map(|item| match item {
        weft_lang::ast::Item::Type(item) => {
            let from = analysis.sources.file(item.span.file).name();
            Some(Proto { span: item.path.span, files: source::on_disk().proto_files(&item.schema(), from) })
        }
        _ => None,
    })
}

/// The line in one of these `.proto` files that declares a field of a message. A search by words suffices: the files
/// have been compiled already, and only the line is needed.
fn declared(programs: &Programs, files: &[String], message: &str, field: &str) -> Option<Location> {
    let name = message.rsplit('.').next().unwrap_or(message);
    for path in files {
        let Ok(text) = file::text(file::read_regular(Path::new(path), FILE_BYTES_MAX)) else { continue };
        if let Some((line, column)) = field_in(&text, name, field) {
            let start = lsp_types::Position { line, character: column };
            let end = lsp_types::Position { line, character: column + field.len() as u32 };
            let uri = programs.uri(path)?;
            return Some(Location { uri, range: Range { start, end } });
        }
    }
    None
}

/// Line and column, from 0, of a field's name within a message of a `.proto` text.
fn field_in(text: &str, message: &str, field: &str) -> Option<(u32, u32)> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut is_inside = false;
    for (at, line) in text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        let words: Vec<&str> = code.split(|c: char| !is_word(c)).filter(|word| !word.is_empty()).collect();
        if words.first() == Some(&"message") {
            is_inside = words.get(1) == Some(&message);
        }
        let declares = code.contains('=') && words.contains(&field);
        if is_inside && declares {
            let column = code.find(&format!(" {field}"))? + 1;
            return Some((at as u32, code[..column].encode_utf16().count() as u32));
        }
    }
    None
}

/// All locations of the symbols at the cursor, in all programs of the file.
pub(super) fn references(
    programs: &Programs,
    cursor: &[Cursor<'_>],
    with_declaration: bool,
) -> Vec<Location> {
    let mut found: Vec<Location> = Vec::new();
    for cursor in cursor {
        let Some(at) = cursor.index().at(cursor.file, cursor.offset) else { continue };
        let uses =
            cursor.index().uses_of(at.symbol).filter(|found| with_declaration || !found.is_declaration);
        for place in uses.filter_map(|found| location(programs, cursor.sources(), found.span)) {
            if !found.contains(&place) {
                found.push(place);
            }
        }
    }
    found
}

/// As [`references`], in one file.
pub(super) fn highlights(cursor: &Cursor<'_>) -> Vec<DocumentHighlight> {
    let Some(at) = cursor.index().at(cursor.file, cursor.offset) else { return Vec::new() };
    let uses = cursor.index().uses_of(at.symbol).filter(|found| found.span.file == cursor.file);
    let highlight = |found: &Use| DocumentHighlight {
        range: range_of(cursor.source(), found.span),
        kind: Some(if found.is_declaration {
            DocumentHighlightKind::WRITE
        } else {
            DocumentHighlightKind::READ
        }),
    };
    uses.map(highlight).collect()
}

/// The declarations of a file, as a tree.
pub(super) fn symbols(cursor: &Cursor<'_>) -> DocumentSymbolResponse {
    DocumentSymbolResponse::Nested(members(cursor, None))
}

/// The outline of a file: the symbols of an owner, with theirs nested.
fn members(cursor: &Cursor<'_>, owner: Option<SymbolId>) -> Vec<DocumentSymbol> {
    let of_file = cursor.index().members_of(owner).filter(|(_, symbol)| symbol.whole.file == cursor.file);
    of_file
        .map(|(id, symbol)| {
            let children = members(cursor, Some(id));
            let detail = symbol.ty.map(|ty| cursor.sources().slice(ty).to_owned());
            #[expect(deprecated, reason = "the field is there, and has to be given")]
            DocumentSymbol {
                name: symbol.name.clone(),
                detail: Some(detail.unwrap_or_else(|| symbol.kind.word().to_owned())),
                kind: symbol_kind(symbol.kind),
                tags: None,
                deprecated: None,
                range: range_of(cursor.source(), symbol.whole),
                selection_range: range_of(cursor.source(), symbol.span),
                children: (!children.is_empty()).then_some(children),
            }
        })
        .collect()
}

/// The protocol's kind of a symbol, which selects its icon.
const fn symbol_kind(kind: SymbolKind) -> Kind {
    use SymbolKind as K;
    match kind {
        K::Item(ItemKind::Type | ItemKind::Protocol) => Kind::STRUCT,
        K::Item(ItemKind::Table) | K::Sink | K::Sketch => Kind::ARRAY,
        K::Item(ItemKind::Element | ItemKind::Filter) => Kind::CLASS,
        K::Item(ItemKind::Function) => Kind::FUNCTION,
        K::Item(ItemKind::Chain) => Kind::MODULE,
        K::Item(_) | K::Edge => Kind::INTERFACE,
        K::Instance => Kind::OBJECT,
        K::Handler => Kind::METHOD,
        K::Signal => Kind::EVENT,
        K::Param | K::Column(_) | K::TableColumn | K::SinkColumn | K::CallCell | K::WireField => Kind::FIELD,
        K::Var | K::Local | K::Row => Kind::VARIABLE,
    }
}

// ---- text ------------------------------------------------------------------------------------------------------

/// The text in the house style; None if it has syntax errors, which are already reported.
pub(super) fn formatting(cursor: &Cursor<'_>) -> Option<Vec<TextEdit>> {
    let formatted = weft_lang::format::format(cursor.sources(), cursor.file)?;
    let file = cursor.source();
    if formatted == file.text() {
        return Some(Vec::new());
    }
    let (start, end) = changed(file.text(), &formatted);
    let new_text = formatted[start..formatted.len() - (file.text().len() - end)].to_owned();
    let range = Range { start: position_of(file, start as u32), end: position_of(file, end as u32) };
    Some(vec![TextEdit { range, new_text }])
}

/// The bytes of the old text that differ from the new one, as whole lines. An edit of these alone keeps the cursor
/// where it is.
fn changed(old: &str, new: &str) -> (usize, usize) {
    let start: usize = old
        .split_inclusive('\n')
        .zip(new.split_inclusive('\n'))
        .take_while(|(a, b)| a == b)
        .map(|(a, _)| a.len())
        .sum();
    let (old_rest, new_rest) = (&old[start..], &new[start..]);
    let from_end = |text: &'_ str| -> Vec<usize> { text.split_inclusive('\n').rev().map(str::len).collect() };
    let (mut kept, mut old_at, mut new_at) = (0, old_rest.len(), new_rest.len());
    for (a, b) in from_end(old_rest).into_iter().zip(from_end(new_rest)) {
        if old_rest[old_at - a..old_at] != new_rest[new_at - b..new_at] {
            break;
        }
        (old_at, new_at, kept) = (old_at - a, new_at - b, kept + a);
    }
    (start, old.len() - kept)
}

/// The completions at the cursor.
pub(super) fn completion(cursor: &Cursor<'_>) -> CompletionResponse {
    let found = complete(&cursor.root.program, cursor.file, cursor.offset);
    let file = cursor.source();
    let range = Range { start: position_of(file, found.start), end: position_of(file, cursor.offset) };
    let mut items: Vec<CompletionItem> =
        found.candidates.into_iter().map(|candidate| item(candidate, range)).collect();
    if let Some(kind) = found.path {
        items.extend(paths(file.name(), kind).into_iter().map(|path| CompletionItem {
            kind: Some(CompletionItemKind::FILE),
            text_edit: Some(CompletionTextEdit::Edit(TextEdit { range, new_text: path.clone() })),
            label: path,
            ..CompletionItem::default()
        }));
    }
    CompletionResponse::Array(items)
}

/// Converts a completion candidate to the protocol's form; it replaces `range`.
fn item(candidate: Candidate, range: Range) -> CompletionItem {
    let Candidate { label, kind, detail, doc } = candidate;
    let kind_shown = match kind {
        CandidateKind::Column | CandidateKind::Field => CompletionItemKind::FIELD,
        CandidateKind::Variable => CompletionItemKind::VARIABLE,
        CandidateKind::Parameter => CompletionItemKind::PROPERTY,
        CandidateKind::Table => CompletionItemKind::STRUCT,
        CandidateKind::Object => CompletionItemKind::CLASS,
        CandidateKind::Function => CompletionItemKind::FUNCTION,
        CandidateKind::Value => CompletionItemKind::CONSTANT,
        CandidateKind::Keyword => CompletionItemKind::KEYWORD,
        CandidateKind::Type => CompletionItemKind::TYPE_PARAMETER,
    };
    let doc = (!doc.is_empty())
        .then_some(Documentation::MarkupContent(MarkupContent { kind: MarkupKind::Markdown, value: doc }));
    CompletionItem {
        kind: Some(kind_shown),
        detail: (!detail.is_empty()).then_some(detail),
        documentation: doc,
        // Names of the program come before keywords.
        sort_text: Some(format!("{}{label}", kind as u8)),
        text_edit: Some(CompletionTextEdit::Edit(TextEdit { range, new_text: label.clone() })),
        label,
        ..CompletionItem::default()
    }
}

/// Files that a text can name: those of the library, and those beside the text.
fn paths(name: &str, kind: PathKind) -> Vec<String> {
    let ending = match kind {
        PathKind::Program => "weft",
        PathKind::Proto => "proto",
        PathKind::Descriptors => "binpb",
    };
    let folder = Path::new(name).parent().unwrap_or(Path::new("."));
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let fits = entries
        .filter(|path| path.extension().is_some_and(|found| found == ending) && path != Path::new(name));
    let mut beside: Vec<String> =
        fits.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect();
    beside.sort();
    let library = weft_control::library::paths().filter(|_| kind == PathKind::Program).map(str::to_owned);
    beside.into_iter().chain(library).collect()
}

// ---- colours ---------------------------------------------------------------------------------------------------

const CLASSES: &[(TokenClass, SemanticTokenType)] = &[
    (TokenClass::Keyword, SemanticTokenType::KEYWORD),
    (TokenClass::Type, SemanticTokenType::TYPE),
    (TokenClass::Function, SemanticTokenType::FUNCTION),
    (TokenClass::Object, SemanticTokenType::CLASS),
    (TokenClass::Table, SemanticTokenType::STRUCT),
    (TokenClass::Parameter, SemanticTokenType::PARAMETER),
    (TokenClass::Column, SemanticTokenType::PROPERTY),
    (TokenClass::Variable, SemanticTokenType::VARIABLE),
    (TokenClass::Number, SemanticTokenType::NUMBER),
    (TokenClass::Text, SemanticTokenType::STRING),
    (TokenClass::Comment, SemanticTokenType::COMMENT),
];

/// The types of tokens, by number.
pub(super) fn legend() -> SemanticTokensLegend {
    SemanticTokensLegend {
        token_types: CLASSES.iter().map(|(_, shown)| shown.clone()).collect(),
        token_modifiers: vec![SemanticTokenModifier::DECLARATION],
    }
}

/// The tokens of a file, each relative to the previous one. A comment over several lines is one token per line.
pub(super) fn tokens(cursor: &Cursor<'_>) -> SemanticTokensResult {
    let file = cursor.source();
    let mut data = Vec::new();
    let mut last = lsp_types::Position::default();
    for token in classes(&cursor.root.program, cursor.file) {
        let token_type =
            CLASSES.iter().position(|(class, _)| *class == token.class).unwrap_or_default() as u32;
        let mut at = token.span.start;
        for line in cursor.sources().slice(token.span).split_inclusive('\n') {
            let start = position_of(file, at);
            at += line.len() as u32;
            let length = line.trim_end_matches(['\r', '\n']).encode_utf16().count() as u32;
            if length == 0 {
                continue;
            }
            let is_same_line = start.line == last.line;
            data.push(SemanticToken {
                delta_line: start.line - last.line,
                delta_start: if is_same_line { start.character - last.character } else { start.character },
                length,
                token_type,
                token_modifiers_bitset: u32::from(token.is_declaration),
            });
            last = start;
        }
    }
    SemanticTokensResult::Tokens(SemanticTokens { result_id: None, data })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An edit of the whole text would move the user's cursor and open folded blocks.
    #[test]
    fn formatting_edits_changed_lines_only() {
        for (old, new) in
            [("a\nb\nc\n", "a\nx\ny\nc\n"), ("a\n", "a\na\n"), ("a\na\n", "a\n"), ("", "a\n"), ("a", "a\n")]
        {
            let (start, end) = changed(old, new);
            let replaced = &new[start..new.len() - (old.len() - end)];
            assert_eq!(format!("{}{replaced}{}", &old[..start], &old[end..]), new, "{old:?}");
        }
        assert_eq!(changed("a\nb\nc\n", "a\nx\ny\nc\n"), (2, 4));
    }

    /// Another message may have a field of the same name.
    #[test]
    fn field_definition_is_found() {
        let text = "message A {\n  string user = 1; // user = 2\n}\n\
                    message B {\n  int64 n = 1;\n  optional string user = 2;\n}\n";
        assert_eq!(field_in(text, "A", "user"), Some((1, 9)));
        assert_eq!(field_in(text, "B", "user"), Some((5, 18)));
        assert_eq!(field_in(text, "B", "absent"), None);
    }
}
