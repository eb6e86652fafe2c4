//! Tables and progress, as wide as the terminal if there is one.

use std::io::{self, IsTerminal};
use std::time::Duration;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The width of the terminal that standard output is, none if it is something else.
pub(crate) fn width() -> Option<u16> {
    let output = io::stdout();
    if !output.is_terminal() {
        return None;
    }
    rustix::termios::tcgetwinsize(output).ok().map(|size| size.ws_col).filter(|&columns| columns > 0)
}

/// The height of the terminal that standard output is, none if it is something else.
pub(crate) fn height() -> Option<u16> {
    let output = io::stdout();
    if !output.is_terminal() {
        return None;
    }
    rustix::termios::tcgetwinsize(output).ok().map(|size| size.ws_row).filter(|&rows| rows > 0)
}

/// An empty table, in which numbers are to go into the columns of `numeric`. Without a width no cell is broken, so that
/// each row is one line for the next program.
pub(crate) fn table(width: Option<u16>, header: &[&str], numeric: &[usize]) -> Table {
    let mut table = Table::new();
    table.load_style(if width.is_some() { presets::UTF8_HORIZONTAL_ONLY } else { presets::NOTHING });
    table.set_header(header.iter().copied().map(str::to_owned).collect::<Vec<_>>());
    match width {
        Some(width) => table.set_width(width).set_content_arrangement(ContentArrangement::Dynamic),
        None => table.set_content_arrangement(ContentArrangement::Disabled),
    };
    for &index in numeric {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Progress through `length` bytes, or just movement if that is not known. Shown on a terminal only.
pub(crate) fn progress(length: Option<u64>) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::stderr_with_hz(10));
    let template = match length {
        Some(_) => "{bar:40} {percent:>3}% {bytes}/{total_bytes} {msg} (ready in {eta})",
        None => "{spinner} {bytes} {msg}",
    };
    // The template is ours; if it were wrong, the bar would only look different.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
