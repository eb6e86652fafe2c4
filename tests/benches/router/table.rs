//! What was found: a row for each figure, a column for each contender.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sluice_tests::bench::median;

use crate::contender::Contender;

/// A figure that is measured of each contender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) judged: Judged,
}

/// When a figure of ours is good enough.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Judged {
    /// It only says what was the case.
    Not,
    /// It is at most this.
    AtMost(f64),
    /// It is at least this.
    AtLeast(f64),
    /// It is at most that of the kernel alone, and so much.
    AsKernel(f64),
    /// It is at least so great a part of that of the flowtable.
    OfFlowtable(f64),
}

/// All figures in the order in which they were noted first.
#[derive(Default)]
pub(crate) struct Table {
    figures: Vec<(Figure, BTreeMap<Contender, Vec<f64>>)>,
}

impl Table {
    /// Notes what was found in a round.
    pub(crate) fn note(&mut self, contender: Contender, figure: Figure, found: f64) {
        let at = self.figures.iter().position(|(known, _)| known.name == figure.name).unwrap_or_else(|| {
            self.figures.push((figure, BTreeMap::new()));
            self.figures.len() - 1
        });
        self.figures[at].1.entry(contender).or_default().push(found);
    }

    pub(crate) fn print(&self) {
        let width = self.figures.iter().map(|(figure, _)| figure.name.len()).max().unwrap_or_default();
        let heads = Contender::ALL.map(|contender| format!("{:>22}", contender.name())).concat();
        println!("\n{:<width$}{heads}  unit", "medians");
        for (figure, found) in &self.figures {
            let columns = Contender::ALL.map(|contender| {
                let found = found.get(&contender).map_or("-".to_owned(), |found| format!("{:.3}", median(found)));
                format!("{found:>22}")
            });
            println!("{:<width$}{}  {}", figure.name, columns.concat(), figure.unit);
        }
    }

    pub(crate) fn rows(&self) -> Vec<Value> {
        self.figures.iter().filter_map(|(figure, found)| row(*figure, found)).collect()
    }
}

fn row(Figure { name, unit, judged }: Figure, found: &BTreeMap<Contender, Vec<f64>>) -> Option<Value> {
    let of = |contender| found.get(&contender).map(|found| median(found));
    let ours = of(Contender::Sluice)?;
    let (kernel, peer) = (of(Contender::Kernel), of(Contender::Flowtable));
    let ratio = peer.filter(|peer| *peer != 0.0).map(|peer| ours / peer);
    let (to_reach, reached) = match judged {
        Judged::Not => (String::new(), None),
        Judged::AtMost(most) => (format!("<= {most}"), Some(ours <= most)),
        Judged::AtLeast(least) => (format!(">= {least}"), Some(ours >= least)),
        Judged::AsKernel(more) => (format!("<= kernel + {more}"), kernel.map(|kernel| ours <= kernel + more)),
        Judged::OfFlowtable(part) => (format!(">= {part} x peer"), ratio.map(|ratio| ratio >= part)),
    };
    Some(json!({
        "name": name, "unit": unit, "ours": ours, "peer": peer, "ratio": ratio, "kernel": kernel,
        "flowtable_offloaded": of(Contender::FlowtableOffloaded), "by_mark": of(Contender::SluiceMarked), "to_reach": to_reach, "reached": reached,
    }))
}
