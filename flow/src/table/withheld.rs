//! Flows whose ports are gone: kept out of the device until the ports are back, or until somebody accepts them anew.
//!
//! A flow names ports by their numbers, and a number may pass to another port. A flow that was accepted for the first one
//! must not take packets from the second, or send packets to it: so it is bound to the port, not to the number.

use super::FlowTable;
use super::life::{Life, Withheld};
use super::record::Record;
use crate::event::Event;
use crate::id::FlowId;
use crate::port::GonePort;
use crate::table::Accepted;
use crate::time::Timestamp;
use crate::ufid::Ufid;

impl FlowTable {
    /// A port is gone: every flow that names its number is refused, and its rule goes out of the device, until the port
    /// [is back](FlowTable::release) or the flow is [modified](FlowTable::modify), which accepts it for whatever port has the
    /// number then. Hands those to look at to `enqueue`, and says how many there are.
    pub fn withhold(&self, port: &GonePort, now: Timestamp, enqueue: &mut dyn FnMut(Accepted)) -> usize {
        self.change_wanted(
            &|record| record.may_name_port(port.number),
            &mut |id, life| {
                let is_known = life.gone_ports().iter().any(|gone| gone.number == port.number);
                if is_known {
                    return None;
                }
                if !life.flow.names_port(port.number) {
                    // A refused modification would go back to it.
                    life.port_gone_at = life.generation;
                    return None;
                }
                let mut ports = life.gone_ports().to_vec();
                ports.push(port.clone());
                Some(self.rebind(id, life, ports, now))
            },
            enqueue,
        )
    }

    /// Ports are back, each with the number and the name that it had: those that are, as `is_back` says.
    pub fn release(
        &self,
        is_back: impl Fn(&GonePort) -> bool,
        now: Timestamp,
        enqueue: &mut dyn FnMut(Accepted),
    ) -> usize {
        self.change_wanted(
            &|record| record.gone_ports().iter().any(&is_back),
            &mut |id, life| {
                let ports = life.gone_ports().iter().filter(|gone| !is_back(gone)).cloned().collect();
                Some(self.rebind(id, life, ports, now))
            },
            enqueue,
        )
    }

    /// Withholds a flow that an earlier run withheld. Before any worker runs.
    pub fn withhold_one(&self, ufid: Ufid, ports: Vec<GonePort>, now: Timestamp) {
        if let Some(id) = self.find(ufid) {
            self.with_life(id, |life| self.rebind(id, life, ports, now));
        }
    }

    /// The ports that withheld flows wait for, with how many flows wait for each.
    pub fn withheld(&self) -> Vec<(GonePort, usize)> {
        let mut counts: Vec<(GonePort, usize)> = Vec::new();
        self.visit(&mut |view| {
            for port in view.gone_ports {
                match counts.iter_mut().find(|(known, _)| *known == port) {
                    Some((_, count)) => *count += 1,
                    None => counts.push((port, 1)),
                }
            }
            std::ops::ControlFlow::Continue(())
        });
        counts.sort_by_key(|(port, _)| port.number);
        counts
    }

    /// Changes every flow that is wanted and concerned, and says how many were changed.
    fn change_wanted(
        &self,
        is_concerned: &dyn Fn(&Record) -> bool,
        change: &mut dyn FnMut(FlowId, &mut Life) -> Option<Accepted>,
        enqueue: &mut dyn FnMut(Accepted),
    ) -> usize {
        let mut count = 0;
        for slot in self.arena.slots() {
            let accepted = self.arena.slot(slot).and_then(|(id, mut record)| {
                // Looked at first: to change a record takes memory.
                if !record.is_wanted() || !is_concerned(&record) {
                    return None;
                }
                record.change(|life| change(id, life))?
            });
            if let Some(accepted) = accepted {
                count += 1;
                enqueue(accepted);
            }
        }
        count
    }

    fn rebind(&self, id: FlowId, life: &mut Life, ports: Vec<GonePort>, now: Timestamp) -> Accepted {
        let is_news = life.withheld.is_none();
        life.withheld = Withheld::new(ports).map(Box::new);
        if let Some(withheld) = life.withheld.as_ref().filter(|_| is_news) {
            let (flow, refusal) = (life.flow.clone(), withheld.refusal.clone());
            self.events.event(&Event::Refused { flow, refusal });
        }
        self.has_changed(id, &life.flow);
        if !life.unsettled {
            self.census.force_change();
            life.unsettled = true;
        }
        let reply_to = life.reply_to.take();
        let accepted = self.changed(id, life, now, reply_to);
        if life.withheld.is_some() {
            life.port_gone_at = life.generation;
        }
        accepted
    }
}
