//! Parses the text of one `.proto` file: proto2, proto3 and editions.
//!
//! Skips options, other than the features that affect the wire format. Skips extensions: a reader of the extended
//! message sees them as unknown fields. Grammar and limits are the same as in `protoc`.
//! Source: <https://protobuf.dev/reference/protobuf/edition-2023-spec/>.

use crate::declared::{
    Edition, Enum, Features, Field, FieldPresence, File, Import, ImportKind, Label, Message, Method, Name,
    Service, Type, scalar,
};
use crate::lexer::{Lexer, SyntaxError, Token, TokenKind, int_value};
use crate::{NAME_BYTES_MAX, NESTING_MAX};
use weft_core::schema::FieldKind;

/// The editions that `protoc` accepts.
const EDITIONS: &[&str] = &["2023", "2024"];
/// The largest field number.
const FIELD_NUMBER_MAX: u64 = (1 << 29) - 1;
/// Field numbers that protobuf reserves.
const FIELD_NUMBERS_RESERVED: core::ops::RangeInclusive<u64> = 19_000..=19_999;

/// Parses a file.
///
/// # Errors
/// The first syntax error and its location.
pub(crate) fn parse(text: &str) -> Result<File, SyntaxError> {
    let mut lexer = Lexer::new(text);
    let token = lexer.next()?;
    let mut parser = Parser { lexer, token, file: File::default() };
    parser.edition()?;
    while parser.token.kind != TokenKind::End {
        parser.statement()?;
    }
    Ok(parser.file)
}

type Parsed<T> = Result<T, SyntaxError>;

struct Parser<'t> {
    /// Positioned after `token`.
    lexer: Lexer<'t>,
    token: Token,
    file: File,
}

/// The construct that contains a field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FieldScope {
    Message,
    /// The oneof with this index.
    Oneof(u32),
    Extend,
}

impl<'t> Parser<'t> {
    // ---- files -------------------------------------------------------------------------------------------------

    /// Parses `syntax = "proto3";` or `edition = "2023";`, the first statement. A file without one is proto2.
    fn edition(&mut self) -> Parsed<()> {
        let is_edition = self.at_word("edition");
        if !is_edition && !self.at_word("syntax") {
            return Ok(());
        }
        self.bump()?;
        self.mark(b'=')?;
        let span = self.token.span.clone();
        let value = self.string("in quotes, such as `\"proto3\"`")?;
        self.file.edition = match value.as_str() {
            "proto2" if !is_edition => Edition::Proto2,
            "proto3" if !is_edition => Edition::Proto3,
            value if is_edition && EDITIONS.contains(&value) => Edition::Editions,
            value if is_edition => {
                let known = EDITIONS.join(" and ");
                return fail(format!("edition `{value}` is not supported: {known} are"), span);
            }
            value => return fail(format!("syntax `{value}` does not exist: proto2 and proto3 do"), span),
        };
        self.mark(b';')
    }

    /// Parses one declaration at the top level of a file.
    fn statement(&mut self) -> Parsed<()> {
        if self.eat_mark(b';')? {
            return Ok(());
        }
        self.visibility()?;
        match self.word_here() {
            Some("import") => self.import(),
            Some("package") => {
                self.bump()?;
                self.file.package = self.full_name("the name of a package")?.text;
                self.mark(b';')
            }
            Some("option") => {
                let features = self.option_statement()?;
                self.file.features = features.within(self.file.features);
                Ok(())
            }
            Some("message") => {
                let message = self.message(0)?;
                self.file.messages.push(message);
                Ok(())
            }
            Some("enum") => {
                let declared = self.enumeration()?;
                self.file.enums.push(declared);
                Ok(())
            }
            Some("service") => self.service(),
            Some("extend") => {
                let mut around = Message::default();
                self.extend(&mut around, 0)?;
                self.file.messages.append(&mut around.messages);
                Ok(())
            }
            _ => self.expected("`message`, `enum`, `service`, `import`, `package`, `option` or `extend`"),
        }
    }

    /// `export` or `local` of edition 2024. Visibility does not affect the wire format.
    fn visibility(&mut self) -> Parsed<()> {
        let is_modifier = self.at_word("export") || self.at_word("local");
        if is_modifier && matches!(self.word_ahead()?, Some("message" | "enum")) {
            self.bump()?;
        }
        Ok(())
    }

    /// Parses an import, and adds it to the file.
    fn import(&mut self) -> Parsed<()> {
        self.bump()?;
        let kind = match self.word_here() {
            Some("public") => ImportKind::Public,
            Some("weak" | "option") => ImportKind::Lax,
            _ => ImportKind::Plain,
        };
        if kind != ImportKind::Plain {
            self.bump()?;
        }
        let span = self.token.span.clone();
        let path = self.string("the path of a `.proto` file, in quotes")?;
        let is_within = |part: &str| !matches!(part, "" | "." | "..");
        if !path.split('/').all(is_within) || path.contains(['\\', '\0']) || path.len() > NAME_BYTES_MAX {
            return fail("an import path is relative to a root folder, and stays inside it".to_owned(), span);
        }
        self.file.imports.push(Import { path, kind, span });
        self.mark(b';')
    }

    /// Parses a service and its methods, and adds it to the file.
    fn service(&mut self) -> Parsed<()> {
        self.bump()?;
        let name = self.name("the name of a service")?;
        let mut service = Service { name: name.text, span: name.span, methods: Vec::new() };
        self.mark(b'{')?;
        while !self.eat_mark(b'}')? {
            match self.word_here() {
                Some("rpc") => service.methods.push(self.method()?),
                Some("option") => drop(self.option_statement()?),
                _ if self.eat_mark(b';')? => {}
                _ => return self.expected("`rpc`, `option` or `}`"),
            }
        }
        self.file.services.push(service);
        Ok(())
    }

    /// Parses a method: its request and response types, and whether they are streams.
    fn method(&mut self) -> Parsed<Method> {
        self.bump()?;
        let name = self.name("the name of a method")?.text;
        let (client_streaming, input) = self.streamed()?;
        self.keyword("returns")?;
        let (server_streaming, output) = self.streamed()?;
        if self.eat_mark(b'{')? {
            while !self.eat_mark(b'}')? {
                match self.word_here() {
                    Some("option") => drop(self.option_statement()?),
                    _ if self.eat_mark(b';')? => {}
                    _ => return self.expected("`option` or `}`"),
                }
            }
        } else {
            self.mark(b';')?;
        }
        Ok(Method { name, input, output, client_streaming, server_streaming })
    }

    /// Parses the type of a request or response: `(Message)` or `(stream Message)`.
    fn streamed(&mut self) -> Parsed<(bool, Name)> {
        self.mark(b'(')?;
        let is_stream = self.at_word("stream") && self.is_name_ahead()?;
        if is_stream {
            self.bump()?;
        }
        let name = self.type_name()?;
        self.mark(b')')?;
        Ok((is_stream, name))
    }

    // ---- messages ----------------------------------------------------------------------------------------------

    /// Parses a message. `depth` is the number of enclosing messages.
    fn message(&mut self, depth: usize) -> Parsed<Message> {
        self.bump()?;
        let name = self.name("the name of a message")?;
        let mut message = Message { name: name.text, span: name.span, ..Message::default() };
        self.message_body(&mut message, depth)?;
        Ok(message)
    }

    /// Parses the body of a message or group. Fails if messages nest deeper than [`NESTING_MAX`].
    fn message_body(&mut self, message: &mut Message, depth: usize) -> Parsed<()> {
        if depth >= NESTING_MAX {
            return fail(format!("messages nest deeper than {NESTING_MAX}"), self.token.span.clone());
        }
        self.mark(b'{')?;
        while !self.eat_mark(b'}')? {
            self.message_statement(message, depth + 1)?;
        }
        Ok(())
    }

    /// Parses one declaration in a message.
    fn message_statement(&mut self, message: &mut Message, depth: usize) -> Parsed<()> {
        if self.eat_mark(b';')? {
            return Ok(());
        }
        self.visibility()?;
        match self.word_here() {
            Some("message") => {
                let inner = self.message(depth)?;
                message.messages.push(inner);
                Ok(())
            }
            Some("enum") => {
                let inner = self.enumeration()?;
                message.enums.push(inner);
                Ok(())
            }
            Some("extend") => self.extend(message, depth),
            Some("extensions" | "reserved") => self.skip_statement(),
            Some("option") => {
                let features = self.option_statement()?;
                message.features = features.within(message.features);
                Ok(())
            }
            Some("oneof") => self.oneof(message, depth),
            _ => self.field(message, FieldScope::Message, depth),
        }
    }

    /// Parses `extend Message { fields }`. Keeps only the messages that its groups declare.
    fn extend(&mut self, around: &mut Message, depth: usize) -> Parsed<()> {
        self.bump()?;
        self.type_name()?;
        let mut extensions = Message::default();
        self.mark(b'{')?;
        while !self.eat_mark(b'}')? {
            if !self.eat_mark(b';')? {
                self.field(&mut extensions, FieldScope::Extend, depth + 1)?;
            }
        }
        around.messages.append(&mut extensions.messages);
        Ok(())
    }

    /// Parses a oneof, and appends its fields to the message.
    fn oneof(&mut self, message: &mut Message, depth: usize) -> Parsed<()> {
        self.bump()?;
        self.name("the name of a oneof")?;
        let oneof = message.oneofs.len() as u32;
        message.oneofs.push(Features::default());
        self.mark(b'{')?;
        while !self.eat_mark(b'}')? {
            if self.at_word("option") {
                let features = self.option_statement()?;
                let known = &mut message.oneofs[oneof as usize];
                *known = features.within(*known);
            } else if !self.eat_mark(b';')? {
                self.field(message, FieldScope::Oneof(oneof), depth)?;
            }
        }
        Ok(())
    }

    /// Parses a field, a map or a group, and appends it to the message. `around` is the enclosing declaration.
    fn field(&mut self, message: &mut Message, around: FieldScope, depth: usize) -> Parsed<()> {
        let label = self.label(around)?;
        if self.at_word("map") && self.mark_ahead()? == Some(b'<') {
            if around != FieldScope::Message || label != Label::None {
                return fail("a map cannot have a label or be a member of a oneof".to_owned(), self.here());
            }
            return self.map(message);
        }
        let is_group = self.at_word("group") && self.word_ahead()?.is_some();
        if is_group && self.file.edition != Edition::Proto2 {
            let why = "groups are proto2's; write a field with `features.message_encoding = DELIMITED`";
            return fail(why.to_owned(), self.here());
        }
        let needs_label = self.file.edition == Edition::Proto2 && !matches!(around, FieldScope::Oneof(_));
        if needs_label && label == Label::None {
            let why = "a field of proto2 begins with `optional`, `required` or `repeated`";
            let span = self.here();
            // Report a token that cannot begin a field as a bad field type.
            self.field_type()?;
            return fail(why.to_owned(), span);
        }
        let ty = if is_group { None } else { Some(self.field_type()?) };
        if is_group {
            self.bump()?;
        }
        let name = self.name("the name of a field")?;
        self.mark(b'=')?;
        let number = self.field_number(around)?;
        let features = self.field_options()?;
        let (ty, name_text) = match ty {
            Some(ty) => {
                self.mark(b';')?;
                (ty, name.text)
            }
            None => {
                let mut inner =
                    Message { name: name.text.clone(), span: name.span.clone(), ..Message::default() };
                self.message_body(&mut inner, depth)?;
                message.messages.push(inner);
                let ty = Type::Group(Name { text: name.text.clone(), span: name.span.clone() });
                (ty, name.text.to_ascii_lowercase())
            }
        };
        let oneof = if let FieldScope::Oneof(oneof) = around { Some(oneof) } else { None };
        message.fields.push(Field { name: name_text, span: name.span, number, label, ty, features, oneof });
        Ok(())
    }

    /// Parses the label of a field. Fails if the edition or `around` does not permit it.
    fn label(&mut self, around: FieldScope) -> Parsed<Label> {
        let (word, edition) = (self.word_here(), self.file.edition);
        let label = match word {
            Some("optional" | "required") => Label::Singular,
            Some("repeated") => Label::Repeated,
            _ => return Ok(Label::None),
        };
        let why = match (word, edition) {
            _ if matches!(around, FieldScope::Oneof(_)) => "a member of a oneof has no label",
            (Some("required"), Edition::Proto3) => "proto3 has no `required` fields",
            (Some("required"), Edition::Editions) => {
                "editions have no `required`; write `[features.field_presence = LEGACY_REQUIRED]`"
            }
            (Some("optional"), Edition::Editions) => {
                "editions have no `optional`: a field is, unless a feature says otherwise"
            }
            _ => {
                self.bump()?;
                return Ok(label);
            }
        };
        fail(why.to_owned(), self.here())
    }

    /// Parses a scalar type, or the name of a type.
    fn field_type(&mut self) -> Parsed<Type> {
        if let Some(kind) = self.word_here().and_then(scalar) {
            self.bump()?;
            return Ok(Type::Scalar(kind));
        }
        if self.token.kind != TokenKind::Word && self.token.kind != TokenKind::Mark(b'.') {
            return self.expected("a field, or `}`");
        }
        self.type_name().map(Type::Named)
    }

    /// Parses the number of a field. Returns 0 for an extension, whose number is not used.
    fn field_number(&mut self, around: FieldScope) -> Parsed<u32> {
        let span = self.here();
        let number = self.int("the number of the field")?;
        // An extension of a message set may have any number.
        if around == FieldScope::Extend {
            return Ok(0);
        }
        if number == 0 || number > FIELD_NUMBER_MAX {
            return fail(format!("a field number is from 1 to {FIELD_NUMBER_MAX}"), span);
        }
        if FIELD_NUMBERS_RESERVED.contains(&number) {
            return fail("protobuf reserves the numbers from 19000 to 19999".to_owned(), span);
        }
        Ok(number as u32)
    }

    /// Parses `map<Key, Value> name = 1;`: a repeated message of a key and a value.
    fn map(&mut self, message: &mut Message) -> Parsed<()> {
        self.bump()?;
        self.mark(b'<')?;
        let span = self.here();
        let key = self.field_type()?;
        let is_key = |kind| !matches!(kind, FieldKind::Float | FieldKind::Double | FieldKind::Bytes);
        if !matches!(key, Type::Scalar(kind) if is_key(kind)) {
            return fail("the key of a map is an integer, a bool or a string".to_owned(), span);
        }
        self.mark(b',')?;
        let value = self.field_type()?;
        self.mark(b'>')?;
        let Name { text: name, span } = self.name("the name of a field")?;
        self.mark(b'=')?;
        let number = self.field_number(FieldScope::Message)?;
        let features = self.field_options()?;
        self.mark(b';')?;
        let part = |name: &str, number, ty| Field {
            name: name.to_owned(),
            span: span.clone(),
            number,
            label: Label::None,
            ty,
            features: Features::default(),
            oneof: None,
        };
        let entry = Message {
            name: entry_name(&name),
            span: span.clone(),
            is_map_entry: true,
            fields: vec![part("key", 1, key), part("value", 2, value)],
            ..Message::default()
        };
        let ty = Type::Named(Name { text: entry.name.clone(), span: span.clone() });
        message.messages.push(entry);
        let label = Label::Repeated;
        message.fields.push(Field { name, span, number, label, ty, features, oneof: None });
        Ok(())
    }

    // ---- enums -------------------------------------------------------------------------------------------------

    /// Parses an enum and its values.
    fn enumeration(&mut self) -> Parsed<Enum> {
        self.bump()?;
        let name = self.name("the name of an enum")?;
        let mut declared = Enum { name: name.text, span: name.span, ..Enum::default() };
        self.mark(b'{')?;
        while !self.eat_mark(b'}')? {
            match self.word_here() {
                _ if self.eat_mark(b';')? => {}
                // An enum value may have these names too.
                Some("option") if self.mark_ahead()? != Some(b'=') => {
                    let features = self.option_statement()?;
                    declared.features = features.within(declared.features);
                }
                Some("reserved") if self.mark_ahead()? != Some(b'=') => self.skip_statement()?,
                _ => {
                    let name = self.name("a value of the enum, or `}`")?.text;
                    self.mark(b'=')?;
                    declared.values.push((name, self.enum_number()?));
                    self.field_options()?;
                    self.mark(b';')?;
                }
            }
        }
        Ok(declared)
    }

    /// Parses the number of an enum value: 32 bits, with a sign.
    fn enum_number(&mut self) -> Parsed<i32> {
        let is_negative = self.eat_mark(b'-')?;
        let span = self.here();
        let number = i128::from(self.int("the number of the value")?);
        match i32::try_from(if is_negative { -number } else { number }) {
            Ok(number) => Ok(number),
            Err(_) => fail("an enum number has 32 bits".to_owned(), span),
        }
    }

    // ---- options -----------------------------------------------------------------------------------------------

    /// `option name = value;`
    fn option_statement(&mut self) -> Parsed<Features> {
        self.bump()?;
        let features = self.option()?;
        self.mark(b';')?;
        Ok(features)
    }

    /// Parses `[name = value, ...]`, if present. Returns the features that it sets.
    fn field_options(&mut self) -> Parsed<Features> {
        let mut features = Features::default();
        if !self.eat_mark(b'[')? {
            return Ok(features);
        }
        loop {
            features = self.option()?.within(features);
            if !self.eat_mark(b',')? {
                break;
            }
        }
        self.mark(b']')?;
        Ok(features)
    }

    /// Parses `name = value`. Returns the features that it sets.
    fn option(&mut self) -> Parsed<Features> {
        let mut features = Features::default();
        let (mut n_parts, mut is_feature) = (0, false);
        let last = loop {
            let part;
            if self.eat_mark(b'(')? {
                self.type_name()?;
                self.mark(b')')?;
                is_feature = false;
                part = "";
            } else {
                let span = self.name("the name of an option")?.span;
                part = &self.lexer.text()[span];
                is_feature = if n_parts == 0 { part == "features" } else { is_feature && n_parts == 1 };
            }
            n_parts += 1;
            if !self.eat_mark(b'.')? {
                break part;
            }
        };
        self.mark(b'=')?;
        if self.token.kind == TokenKind::Mark(b'{') {
            self.aggregate(&mut features, is_feature && n_parts == 1)?;
            return Ok(features);
        }
        if !self.eat_mark(b'-')? {
            self.eat_mark(b'+')?;
        }
        match self.token.kind {
            TokenKind::Word => {
                let value = self.token.clone();
                self.bump()?;
                if is_feature && n_parts == 2 {
                    self.feature(&mut features, last, &value)?;
                }
            }
            TokenKind::Int | TokenKind::Float => self.bump()?,
            TokenKind::String => drop(self.string("a value")?),
            _ => return self.expected("the value of the option"),
        }
        Ok(features)
    }

    /// Skips `{ name: value ... }`, except for features.
    fn aggregate(&mut self, features: &mut Features, is_feature: bool) -> Parsed<()> {
        let opened = self.here();
        let mut depth = 0_usize;
        loop {
            match self.token.kind {
                TokenKind::Mark(b'{') => depth += 1,
                TokenKind::Mark(b'}') => depth -= 1,
                TokenKind::End => return fail("this `{` has no `}`".to_owned(), opened),
                TokenKind::Word if is_feature && depth == 1 => {
                    let name = &self.lexer.text()[self.token.span.clone()];
                    self.bump()?;
                    if self.eat_mark(b':')? && self.token.kind == TokenKind::Word {
                        let value = self.token.clone();
                        self.feature(features, name, &value)?;
                        self.bump()?;
                    }
                    continue;
                }
                _ => {}
            }
            self.bump()?;
            if depth == 0 {
                return Ok(());
            }
        }
    }

    /// Stores the value of a feature. The other features do not affect the wire format, or a reader must accept both
    /// settings.
    fn feature(&self, features: &mut Features, name: &str, value: &Token) -> Parsed<()> {
        let word = &self.lexer.text()[value.span.clone()];
        match (name, word) {
            ("field_presence", "EXPLICIT" | "LEGACY_REQUIRED") => {
                features.presence = Some(FieldPresence::Explicit);
            }
            ("field_presence", "IMPLICIT") => features.presence = Some(FieldPresence::Implicit),
            ("enum_type", "OPEN") => features.enum_is_closed = Some(false),
            ("enum_type", "CLOSED") => features.enum_is_closed = Some(true),
            ("message_encoding", "LENGTH_PREFIXED") => features.is_delimited = Some(false),
            ("message_encoding", "DELIMITED") => features.is_delimited = Some(true),
            ("field_presence" | "enum_type" | "message_encoding", _) => {
                return fail(format!("feature `{name}` has no value `{word}`"), value.span.clone());
            }
            _ => {}
        }
        Ok(())
    }

    /// Skips a statement up to its `;`.
    fn skip_statement(&mut self) -> Parsed<()> {
        let begun = self.here();
        let mut depth = 0_usize;
        loop {
            match self.token.kind {
                TokenKind::Mark(b'{' | b'[') => depth += 1,
                TokenKind::Mark(b'}' | b']') if depth == 0 => return self.expected("`;`"),
                TokenKind::Mark(b'}' | b']') => depth -= 1,
                TokenKind::Mark(b';') if depth == 0 => return self.bump(),
                TokenKind::End => return fail("this statement has no `;`".to_owned(), begun),
                _ => {}
            }
            self.bump()?;
        }
    }

    // ---- tokens ------------------------------------------------------------------------------------------------

    fn bump(&mut self) -> Parsed<()> {
        self.token = self.lexer.next()?;
        Ok(())
    }

    fn here(&self) -> core::ops::Range<usize> {
        self.token.span.clone()
    }

    fn word_here(&self) -> Option<&'t str> {
        (self.token.kind == TokenKind::Word).then(|| &self.lexer.text()[self.token.span.clone()])
    }

    fn at_word(&self, word: &str) -> bool {
        self.word_here() == Some(word)
    }

    fn word_ahead(&self) -> Parsed<Option<&'t str>> {
        let ahead = self.lexer.clone().next()?;
        Ok((ahead.kind == TokenKind::Word).then(|| &self.lexer.text()[ahead.span]))
    }

    fn mark_ahead(&self) -> Parsed<Option<u8>> {
        let ahead = self.lexer.clone().next()?;
        Ok(if let TokenKind::Mark(mark) = ahead.kind { Some(mark) } else { None })
    }

    /// Whether a name follows, with an optional leading dot, instead of the rest of a name that the token begins.
    fn is_name_ahead(&self) -> Parsed<bool> {
        let mut lexer = self.lexer.clone();
        let (first, second) = (lexer.next()?, lexer.next()?);
        // `stream.Name` is one name, `stream .Name` is two: only the space tells them apart.
        let is_apart = first.span.start > self.token.span.end;
        Ok(match first.kind {
            TokenKind::Word => true,
            TokenKind::Mark(b'.') => is_apart && second.kind == TokenKind::Word,
            _ => false,
        })
    }

    /// Consumes this punctuation mark if it is next. Returns whether it was.
    fn eat_mark(&mut self, mark: u8) -> Parsed<bool> {
        let is_there = self.token.kind == TokenKind::Mark(mark);
        if is_there {
            self.bump()?;
        }
        Ok(is_there)
    }

    fn mark(&mut self, mark: u8) -> Parsed<()> {
        if self.eat_mark(mark)? { Ok(()) } else { self.expected(&format!("`{}`", char::from(mark))) }
    }

    fn keyword(&mut self, word: &str) -> Parsed<()> {
        if self.at_word(word) { self.bump() } else { self.expected(&format!("`{word}`")) }
    }

    /// Parses one name. `what` describes it in the error.
    fn name(&mut self, what: &str) -> Parsed<Name> {
        let Some(word) = self.word_here() else { return self.expected(what) };
        let span = self.here();
        if word.len() > NAME_BYTES_MAX {
            return fail(format!("a name has at most {NAME_BYTES_MAX} bytes"), span);
        }
        self.bump()?;
        Ok(Name { text: word.to_owned(), span })
    }

    /// Names separated by dots.
    fn full_name(&mut self, what: &str) -> Parsed<Name> {
        let Name { mut text, mut span } = self.name(what)?;
        while self.eat_mark(b'.')? {
            let part = self.name(what)?;
            text.push('.');
            text.push_str(&part.text);
            span.end = part.span.end;
            if text.len() > NAME_BYTES_MAX {
                return fail(format!("a name has at most {NAME_BYTES_MAX} bytes"), span);
            }
        }
        Ok(Name { text, span })
    }

    /// The name of a message or an enum. A leading dot marks a fully qualified name.
    fn type_name(&mut self) -> Parsed<Name> {
        let start = self.token.span.start;
        let is_whole = self.eat_mark(b'.')?;
        let name = self.full_name("the name of a type")?;
        let text = if is_whole { format!(".{}", name.text) } else { name.text };
        Ok(Name { text, span: start..name.span.end })
    }

    /// Parses an unsigned 64-bit integer. `what` describes it in the error.
    fn int(&mut self, what: &str) -> Parsed<u64> {
        let span = self.here();
        if self.token.kind != TokenKind::Int {
            return self.expected(what);
        }
        self.bump()?;
        match int_value(&self.lexer.text()[span.clone()]) {
            Some(value) => Ok(value),
            None => fail("this is not a 64-bit integer".to_owned(), span),
        }
    }

    /// Parses string literals; adjacent ones are concatenated.
    fn string(&mut self, what: &str) -> Parsed<String> {
        if self.token.kind != TokenKind::String {
            return self.expected(what);
        }
        let mut value = String::new();
        while self.token.kind == TokenKind::String {
            let span = self.here();
            // No valid path or edition contains an escape sequence.
            value.push_str(&self.lexer.text()[span.start + 1..span.end - 1]);
            self.bump()?;
        }
        Ok(value)
    }

    /// Fails with a message that names the expected and the found token.
    fn expected<T>(&self, what: &str) -> Parsed<T> {
        let found = match self.token.kind {
            TokenKind::End => "the end of the file".to_owned(),
            _ => format!("`{}`", shown(&self.lexer.text()[self.token.span.clone()])),
        };
        fail(format!("expected {what}, and found {found}"), self.here())
    }
}

/// The name of a map's entry message, as in `protoc`: `HeaderNamesEntry` for `header_names`.
fn entry_name(field: &str) -> String {
    let mut name = String::with_capacity(field.len() + 5);
    let mut is_upper = true;
    for letter in field.chars() {
        if letter == '_' {
            is_upper = true;
        } else {
            name.push(if is_upper { letter.to_ascii_uppercase() } else { letter });
            is_upper = false;
        }
    }
    name + "Entry"
}

/// A token for a message, shortened if it is long.
fn shown(token: &str) -> String {
    const CHARS_SHOWN: usize = 40;
    match token.char_indices().nth(CHARS_SHOWN) {
        Some((end, _)) => format!("{}...", &token[..end]),
        None => token.to_owned(),
    }
}

fn fail<T>(why: String, span: core::ops::Range<usize>) -> Parsed<T> {
    Err(SyntaxError { why, span })
}
