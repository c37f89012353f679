//! Tables for people: columns as wide as their widest cell, two spaces between.

use weft_core::text::escape;

/// The alignment of a column's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// To the left.
    Left,
    /// To the right.
    Right,
}

/// A table that grows row by row.
pub struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    pub fn new(columns: &[(&str, Align)]) -> Self {
        Self {
            columns: columns.iter().map(|(name, align)| (escape(name).into_owned(), *align)).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row with a cell for each column.
    pub fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.columns.len(), "a row has a cell for each column");
        // A peer may have chosen the text of a cell: it must not look like a row of its own.
        self.rows.push(cells.iter().map(|cell| escape(cell).into_owned()).collect());
    }

    /// The header and the rows, a line each; empty if there are no rows.
    pub fn render(&self) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let header: Vec<String> = self.columns.iter().map(|(name, _)| name.clone()).collect();
        let lines = || core::iter::once(&header).chain(&self.rows);
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|c| lines().map(|cells| cells[c].chars().count()).max().unwrap_or(0))
            .collect();
        let mut out = String::new();
        for cells in lines() {
            let mut line = String::new();
            for ((cell, width), (_, align)) in cells.iter().zip(&widths).zip(&self.columns) {
                let padding = " ".repeat(width - cell.chars().count());
                let (before, after) = if *align == Align::Right { (&*padding, "") } else { ("", &*padding) };
                line.push_str(&format!("{before}{cell}{after}  "));
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_fit_widest_cell() {
        let mut table = Table::new(&[("name", Align::Left), ("n", Align::Right)]);
        table.row(vec!["a".to_owned(), "1,000".to_owned()]);
        table.row(vec!["longer".to_owned(), "7".to_owned()]);
        assert_eq!(table.render(), "name        n\na       1,000\nlonger      7\n");
    }

    #[test]
    fn line_feed_in_cell_keeps_row() {
        // A peer could forge a row with its name.
        let mut table = Table::new(&[("user", Align::Left), ("n", Align::Right)]);
        table.row(vec!["b\nroot  999".to_owned(), "1".to_owned()]);
        assert_eq!(table.render(), "user          n\nb\\nroot  999  1\n");
    }
}
