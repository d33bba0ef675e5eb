//! Tables of text for the terminal.

use crate::printable::printable;

/// A table whose columns are as wide as their widest cell.
pub(crate) struct Table {
    heads: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

/// The side at which the cells of a column stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

impl Table {
    pub(crate) fn new(heads: &[(&'static str, Align)]) -> Self {
        Self { heads: heads.to_vec(), rows: Vec::new() }
    }

    /// Adds a row. Names come from clients: nothing in them is obeyed by the terminal.
    pub(crate) fn row<const N: usize>(&mut self, cells: &[String; N]) {
        self.cells(cells);
    }

    /// Adds a row of as many cells as there are columns.
    pub(crate) fn cells(&mut self, cells: &[String]) {
        self.rows.push(cells.iter().map(|cell| printable(cell)).collect());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The lines of the table, its heads first.
    pub(crate) fn lines(&self) -> Vec<String> {
        let width = |text: &str| text.chars().count();
        let widest = |at: usize, head: &str| {
            let cells = self.rows.iter().filter_map(|row| row.get(at));
            cells.map(|cell| width(cell)).max().unwrap_or(0).max(width(head))
        };
        let widths: Vec<usize> =
            self.heads.iter().enumerate().map(|(at, (head, _))| widest(at, head)).collect();
        let heads: Vec<String> = self.heads.iter().map(|(head, _)| (*head).to_owned()).collect();
        std::iter::once(&heads).chain(&self.rows).map(|row| self.line(row, &widths)).collect()
    }

    fn line(&self, row: &[String], widths: &[usize]) -> String {
        let cells = row.iter().zip(widths).zip(&self.heads).map(|((cell, width), (_, align))| {
            let room = " ".repeat(width.saturating_sub(cell.chars().count()));
            match align {
                Align::Left => format!("{cell}{room}"),
                Align::Right => format!("{room}{cell}"),
            }
        });
        cells.collect::<Vec<String>>().join("  ").trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_names_are_harmless() {
        let mut table = Table::new(&[("USER", Align::Left), ("OPS", Align::Right)]);
        table.row(&["\u{1b}[2Jb\u{e4}rbel".into(), "7".into()]);
        table.row(&["ann".into(), "12345".into()]);
        let lines = table.lines();
        assert_eq!(lines, ["USER          OPS", "?[2Jb\u{e4}rbel      7", "ann         12345"]);
    }
}
