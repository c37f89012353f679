//! Lowers verdicts: ABORT, REPLY, REDIRECT, DROP and FORWARD.

use weft_core::{Status, Type};
use weft_ir::ir::{IntCmp, Op, StatusOperand, Terminator, Value};
use weft_lang::diagnostic::{Diagnostic, code};
use weft_lang::hir::{AnswerTarget, ColumnLocation, Expr, Verdict, VerdictKind};
use weft_lang::source::Span;

use super::handler::Statements;
use super::logic::Val;
use super::places;

impl Statements<'_, '_> {
    /// Ends the handler.
    pub(super) fn verdict(&mut self, verdict: &Verdict) {
        self.body.set_line(verdict.span);
        let line = self.body.b.line();
        let end = match &verdict.kind {
            VerdictKind::Forward => {
                self.check_front(verdict.span);
                Terminator::Forward
            }
            VerdictKind::Drop => Terminator::Drop { line },
            VerdictKind::Steer(_) => {
                self.check_front(verdict.span);
                Terminator::Steer { line }
            }
            VerdictKind::Abort { status, text, with } => self.abort(status, text.as_ref(), with, line),
            VerdictKind::Reply { fields } => {
                self.reply(fields, verdict.span);
                Terminator::Reply { line }
            }
            VerdictKind::ReplyPayload { bytes } => {
                let bytes = self.checked(bytes).value;
                let whole = places::reply(&mut self.body.lowering.program, &[], Type::Bytes(None));
                self.body.b.act(Op::SetReply(whole, bytes));
                Terminator::Reply { line }
            }
            VerdictKind::Redirect { to } => {
                self.check_front(verdict.span);
                let to = self.checked(to);
                let to = self.not_null(to);
                Terminator::Redirect { to, line }
            }
        };
        self.body.b.set_line(line);
        self.check_scratch();
        if let VerdictKind::Steer(edge) = verdict.kind {
            self.steer(edge);
        }
        self.body.b.end(end);
    }

    /// Lowers ABORT: the status, the message, and the headers or trailers of the answer.
    fn abort(
        &mut self,
        status: &Expr,
        text: Option<&Expr>,
        with: &[(AnswerTarget, Expr)],
        line: u32,
    ) -> Terminator {
        let status = self.checked(status).value;
        let known = self.body.b.known_int(status).and_then(|code| Status::from_code(code as u64));
        let status = match known {
            Some(known) => StatusOperand::Known(known),
            None => StatusOperand::Computed(self.no_ok(status)),
        };
        let text = text.map(|text| {
            let text = self.checked(text);
            let Some(null) = text.null else { return text.value };
            let none = self.body.b.bytes(b"");
            self.body.b.select(null, none, text.value)
        });
        for (place, value) in with {
            let (AnswerTarget::Header(name) | AnswerTarget::Trailer(name)) = place;
            let id = places::answer(&mut self.body.lowering.program, name);
            let value: Val = self.checked(value);
            self.set_or(value.null, |stmts| stmts.body.b.act(Op::SetAnswer(id, value.value)), |_| {});
        }
        Terminator::Abort { status, text, line }
    }

    /// A computed status, with UNKNOWN in place of OK: OK without a message would be half an answer.
    fn no_ok(&mut self, status: Value) -> Value {
        let ok = self.body.b.int(i64::from(Status::Ok.code()));
        let is_ok = self.body.b.int_compare(IntCmp::Eq, status, ok);
        let unknown = self.body.b.int(i64::from(Status::Unknown.code()));
        self.body.b.select(is_ok, unknown, status)
    }

    /// Lowers REPLY: sets the fields of the answer. Reports columns that are not bound to a field of it.
    fn reply(&mut self, fields: &[(usize, Expr)], span: Span) {
        for (column, value) in fields {
            let decl = &self.body.scope.element.columns[*column];
            let ColumnLocation::Body(path) = &self.body.scope.instance.bindings[*column].place else {
                let message = format!("`{}` is no field of the answer in this chain", decl.name);
                let diagnostic = Diagnostic::error(code::FIELD_NOT_BINDABLE, message)
                    .at(span, "REPLY makes a message")
                    .with_help("bind the column to a field of the response");
                self.body.lowering.report(diagnostic);
                continue;
            };
            let ty: Type = decl.ty;
            let id = places::reply(&mut self.body.lowering.program, path, ty);
            let value = self.checked(value);
            self.set_or(value.null, |stmts| stmts.body.b.act(Op::SetReply(id, value.value)), |_| {});
        }
    }
}
