//! Declares the state of a chain: tables, variables, call cells and sinks.

use weft_core::Value;
use weft_core::limits::{KEY_BYTES_MAX, ROW_BYTES_MAX};
use weft_core::table::{ColumnSpec, Evict, TableSpec};
use weft_ir::ir::{CallId, SinkId, TableId, VarId};
use weft_ir::program::{
    CallCell, Merge, Realisation, SinkColumn, SinkDecl, SinkFormat, SinkTarget, TableDecl, VarDecl,
    cell_words,
};
use weft_lang::ast;
use weft_lang::check::fold::fold;
use weft_lang::diagnostic::{Diagnostic, code};
use weft_lang::hir::{self, FillTarget, TableRef};
use weft_lang::source::Span;
use weft_lang::types;

use super::{Lowering, STDOUT_PATH, Scope};

/// Gives stages the tables of other stages that they use: the checker guarantees that each is unique.
pub(super) fn join_stage_tables(scopes: &mut [Scope<'_>]) {
    for at in 0..scopes.len() {
        for (index, table) in scopes[at].element.tables.iter().enumerate() {
            let Some(stage) = &table.stage else { continue };
            let found = scopes.iter().find(|scope| scope.element.name == *stage).and_then(|scope| {
                let of = scope.element.tables.iter().position(|other| other.name == table.name)?;
                Some(scope.tables[of])
            });
            scopes[at].tables[index] = found.expect("the checker has found the table of the stage");
        }
    }
}

impl<'n> Lowering<'n> {
    /// Declares the tables, variables, call cells and sinks of a stage. Tables of other stages are filled in later.
    pub(super) fn declare(&mut self, chain: usize, at: usize) -> Scope<'n> {
        let instance = &self.network.chains[chain].instances[at];
        let element = &self.network.elements[instance.element];
        let mut scope = Scope::of(element, instance);
        for (index, table) in element.tables.iter().enumerate() {
            if table.stage.is_some() {
                scope.tables.push(TableId(u16::MAX));
                continue;
            }
            let target = FillTarget::Own { chain, instance: at, table: index };
            let decl = self.table(table, &instance.name, instance.tables[index], &instance.params, target);
            scope.tables.push(decl);
        }
        self.declare_shared(element);
        for var in &element.vars {
            scope.vars.push(self.var(var, instance));
        }
        for cell in &element.call {
            scope.call.push(self.call_cell(cell, instance));
        }
        for (sink, target) in element.sinks.iter().zip(&instance.sinks) {
            scope.sinks.push(self.sink(element, sink, target, instance));
        }
        scope
    }

    /// Declares the shared tables that an element uses, unless they are declared already.
    fn declare_shared(&mut self, element: &'n hir::Element) {
        for handler in element.handlers.iter() {
            let effects = &handler.effects;
            for table in effects.tables_read.iter().chain(&effects.tables_written) {
                let TableRef::Shared(index) = *table else { continue };
                let decl = &self.network.tables[index];
                let Some(limits) = decl.limits.filter(|_| !self.shared.contains_key(&index)) else {
                    continue;
                };
                let id = self.table(decl, "", limits, &[], FillTarget::Shared(index));
                self.shared.insert(index, id);
            }
        }
    }

    /// Declares a table with its limits and initial rows.
    fn table(
        &mut self,
        table: &hir::Table,
        owner: &str,
        limits: hir::TableLimits,
        params: &[Value],
        target: FillTarget,
    ) -> TableId {
        let column = |column: &hir::TableColumn| ColumnSpec {
            name: column.name.clone(),
            ty: column.ty,
            nullable: column.nullable,
            default: column.default.as_ref().and_then(|e| fold(e, params).ok()).unwrap_or(Value::Null),
        };
        let (key, columns) = table.columns.split_at(table.n_keys);
        let realisation = match (table.filled.is_some(), table.per_worker) {
            (true, _) => Realisation::Replicated,
            (false, true) => Realisation::PerWorker,
            (false, false) => Realisation::Striped,
        };
        let evict = match table.evict {
            Some(ast::Evict::Oldest) => Evict::Oldest,
            Some(ast::Evict::Lru) => Evict::Lru,
            Some(ast::Evict::Reject) | None => Evict::Reject,
        };
        let spec = TableSpec {
            name: table.name.clone(),
            key: key.iter().map(column).collect(),
            columns: columns.iter().map(column).collect(),
            max_rows: limits.rows_max,
            evict,
            ttl: limits.ttl,
            ttl_on_access: table.ttl_on_access,
            ttl_on_insert: limits.ttl_on_insert,
            shared: self.options.workers > 1 && realisation == Realisation::Striped,
            stripes: None,
        };
        self.check_row(&spec, table.span);
        let fills = self.network.fills.iter().filter(|fill| fill.table == target);
        let rows = fills.flat_map(|fill| fill.rows.iter().cloned()).collect();
        self.program.tables.push(TableDecl { owner: owner.to_owned(), spec, realisation, rows });
        TableId(self.program.tables.len() as u16 - 1)
    }

    /// Reports a table whose rows or keys are too wide.
    fn check_row(&mut self, spec: &TableSpec, span: Span) {
        let key_bytes: u64 = spec.key.iter().map(|c| u64::from(c.ty.bytes_max().unwrap_or(0))).sum();
        if spec.row_bytes() > ROW_BYTES_MAX as u64 || key_bytes > KEY_BYTES_MAX as u64 {
            let message =
                format!("a row of `{}` has {} bytes, and its key {key_bytes}", spec.name, spec.row_bytes());
            let diagnostic = Diagnostic::error(code::OVER_LIMIT, message)
                .at(span, "too wide")
                .with_help(format!("a row takes {ROW_BYTES_MAX} bytes at most, a key {KEY_BYTES_MAX}"));
            self.report(diagnostic);
        }
    }

    /// Declares a variable with its start value.
    fn var(&mut self, var: &hir::Var, instance: &hir::Instance) -> VarId {
        let start = var.start.as_ref().and_then(|e| fold(e, &instance.params).ok());
        let merge = var.merge.map(|merge| match merge {
            ast::Merge::Sum => Merge::Sum,
            ast::Merge::Max => Merge::Max,
            ast::Merge::Min => Merge::Min,
        });
        let id = self.program.vars.len();
        self.program.vars.push(VarDecl {
            owner: instance.name.clone(),
            name: var.name.clone(),
            ty: var.ty,
            word: id as u32,
            start: start.unwrap_or_else(|| types::zero(var.ty)),
            merge,
        });
        VarId(id as u16)
    }

    /// Declares a cell in the call's row, after the previous cells.
    fn call_cell(&mut self, cell: &hir::CallCell, instance: &hir::Instance) -> CallId {
        let word = self.program.call.last().map_or(0, |last| last.word as usize + cell_words(last.ty));
        self.program.call.push(CallCell {
            owner: instance.name.clone(),
            name: cell.name.clone(),
            ty: cell.ty,
            word: word as u32,
        });
        CallId(self.program.call.len() as u16 - 1)
    }

    /// Declares a sink with its target and format.
    fn sink(
        &mut self,
        element: &hir::Element,
        sink: &hir::Sink,
        target: &hir::SinkTarget,
        instance: &hir::Instance,
    ) -> SinkId {
        let format = match sink.format {
            ast::SinkFormat::Json => SinkFormat::Json,
            ast::SinkFormat::Text => SinkFormat::Text,
        };
        let target = match target {
            hir::SinkTarget::File(path) if path == STDOUT_PATH => SinkTarget::Stdout,
            hir::SinkTarget::File(path) => SinkTarget::File(path.clone()),
            hir::SinkTarget::Stdout => SinkTarget::Stdout,
            hir::SinkTarget::Metrics => SinkTarget::Metrics,
            hir::SinkTarget::Table { table, deletes } => {
                let (owner, table) = match table {
                    TableRef::Own(at) => (instance.name.clone(), element.tables[*at].name.clone()),
                    TableRef::Shared(at) => (String::new(), self.network.tables[*at].name.clone()),
                };
                SinkTarget::Table { owner, table, deletes: *deletes }
            }
        };
        let columns = sink.columns.iter().map(|c| SinkColumn { name: c.name.clone(), ty: c.ty }).collect();
        self.program.sinks.push(SinkDecl {
            owner: instance.name.clone(),
            name: sink.name.clone(),
            columns,
            target,
            format,
        });
        SinkId(self.program.sinks.len() as u16 - 1)
    }
}
