//! The flows of this host's Open vSwitch.
//!
//! With `hw-offload` off, or where tc refuses, flows are in the kernel's datapath, which anybody may read. With `hw-offload` on, those that
//! tc takes are not there: ovs-vswitchd knows them, as it knows the flows of userspace datapaths (OVS-DPDK, OVS-DOCA). Its control socket
//! is for root and for OVS's own group. Both are read, and neither twice.

use std::path::Path;
use std::rc::Rc;

use super::dump::DumpReader;
use super::observer::Observer;
use crate::kernel::{Kernel, KernelError};
use crate::vswitchd::{Flows, Vswitchd, VswitchdError};
use crate::wire::{FlowMessage, now};

/// What the names of the kernel's datapaths begin with in ovs-vswitchd.
const SYSTEM: &str = "system@";

/// Why there is nothing to be read.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// Neither the kernel nor ovs-vswitchd tells of a datapath.
    #[error("no Open vSwitch on this host that can be read: {kernel}; {vswitchd}")]
    Nothing {
        /// What the kernel has.
        kernel: String,
        /// What ovs-vswitchd has.
        vswitchd: String,
    },
    /// The kernel's datapath could not be read to its end.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// ovs-vswitchd did not tell all.
    #[error(transparent)]
    Vswitchd(#[from] VswitchdError),
}

impl Observer {
    /// Reads the flows of all datapaths of this network namespace: those in the kernel, and by the control socket of ovs-vswitchd those in
    /// tc and in userspace. `socket` is that of another daemon than the one whose pidfile is in the run folder.
    pub fn live(&mut self, socket: Option<&Path>) -> Result<(), LiveError> {
        let kernel = Kernel::open().and_then(|mut kernel| Ok((kernel.datapaths()?, kernel)));
        let vswitchd = Vswitchd::connect(socket).and_then(|mut vswitchd| Ok((vswitchd.datapaths()?, vswitchd)));
        let (mut kernel, datapaths, in_kernel) = match kernel {
            Ok((datapaths, kernel)) => (Some(kernel), datapaths, "the kernel has no datapath".to_owned()),
            Err(error) => (None, Vec::new(), error.to_string()),
        };
        let (mut vswitchd, names, in_vswitchd) = match vswitchd {
            Ok((names, vswitchd)) => (Some(vswitchd), names, "ovs-vswitchd has no datapath".to_owned()),
            Err(error) => (None, Vec::new(), error.to_string()),
        };
        if datapaths.is_empty() && names.is_empty() {
            return Err(LiveError::Nothing { kernel: in_kernel, vswitchd: in_vswitchd });
        }
        if let (None, false) = (&vswitchd, datapaths.is_empty()) {
            self.note(format!(
                "{in_vswitchd}. Flows that it has put into tc (hw-offload=true) or that are in a datapath of its own are missing here; \
                 root and OVS's group may ask it."
            ));
        }
        for datapath in &datapaths {
            let name = format!("{SYSTEM}{}", datapath.name);
            self.begin(&name);
            if let Some(kernel) = &mut kernel {
                kernel.vports(datapath.index)?.iter().for_each(|vport| self.vport(vport));
                kernel.flows(datapath.index, &mut |payload| match FlowMessage::read(payload, now()) {
                    Ok(message) => self.message(&message),
                    Err(error) => self.unread("a flow of the kernel", error.to_string()),
                })?;
            }
            if let (Some(vswitchd), true) = (&mut vswitchd, names.contains(&name))
                && let Err(error) = self.of_vswitchd(vswitchd, &name, Flows::InTc)
            {
                self.note(format!("Flows of {name} that are in tc are missing: {error}."));
            }
        }
        let is_of_kernel =
            |name: &String| datapaths.iter().any(|datapath| name.strip_prefix(SYSTEM) == Some(&datapath.name));
        for name in names.iter().filter(|name| !is_of_kernel(name)) {
            if let Some(vswitchd) = &mut vswitchd {
                self.begin(name);
                self.of_vswitchd(vswitchd, name, Flows::All)?;
            }
        }
        Ok(())
    }

    fn of_vswitchd(&mut self, vswitchd: &mut Vswitchd, name: &str, which: Flows) -> Result<(), VswitchdError> {
        let ports = Rc::clone(self.ports());
        let mut reader = DumpReader::new(&ports);
        if which == Flows::All {
            vswitchd.show(name, &mut |line| reader.line(line, self))?;
        }
        vswitchd.flows(name, which, &mut |line| reader.line(line, self))
    }
}
