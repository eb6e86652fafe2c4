//! Receive queues, tables of them, and queue pairs that spread frames over such a table.

use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::{NonNull, null, null_mut};

use rdma_sys as sys;

use super::pairs::QueuePair;
use super::{CompletionQueue, Context, MemoryRegion, ProtectionDomain, calls, unsupported};
use crate::{done, made};

/// A receive queue.
#[derive(Debug)]
pub struct WorkQueue<'a> {
    raw: NonNull<sys::ibv_wq>,
    of: PhantomData<&'a Context>,
}

/// States of a receive queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum WorkState {
    /// As it was made.
    Reset = sys::ibv_wq_state::IBV_WQS_RESET,
    /// Frames come in.
    Ready = sys::ibv_wq_state::IBV_WQS_RDY,
    /// None any more.
    Error = sys::ibv_wq_state::IBV_WQS_ERR,
}

impl ProtectionDomain<'_> {
    /// A receive queue with room for `requests`, whose completions are told by `done`.
    ///
    /// # Errors
    /// As `ibv_create_wq` fails.
    pub fn work_queue<'a>(&'a self, done: &'a CompletionQueue<'_>, requests: u32) -> io::Result<WorkQueue<'a>> {
        let mut attributes = sys::ibv_wq_init_attr {
            wq_context: null_mut(),
            wq_type: sys::ibv_wq_type::IBV_WQT_RQ,
            max_wr: requests,
            max_sge: 1,
            pd: self.raw.as_ptr(),
            cq: done.raw.as_ptr(),
            comp_mask: 0,
            create_flags: 0,
        };
        // SAFETY: domain and queue live as long as the work queue.
        let raw = unsafe {
            let context = self.raw.as_ref().context;
            calls(context)?.create_wq.ok_or_else(unsupported)?(context, &raw mut attributes)
        };
        let mut raw = made(raw)?;
        // SAFETY: nobody else has the queue yet. Its events are counted under a lock, which whoever makes it begins.
        unsafe {
            raw.as_mut().events_completed = 0;
            libc::pthread_mutex_init((&raw mut (*raw.as_ptr()).mutex).cast(), null());
            libc::pthread_cond_init((&raw mut (*raw.as_ptr()).cond).cast(), null());
        }
        Ok(WorkQueue { raw, of: PhantomData })
    }

    /// A queue pair that spreads what it receives over a table by the hash of Toeplitz with this key, over fields as
    /// `enum ibv_rx_hash_fields` has them.
    ///
    /// # Errors
    /// As `ibv_create_qp_ex` fails.
    pub fn hashing_pair<'a>(
        &'a self,
        table: &'a WorkTable<'_>,
        key: &mut [u8],
        fields: u64,
    ) -> io::Result<QueuePair<'a>> {
        let mut attributes = MaybeUninit::<sys::ibv_qp_init_attr_ex>::zeroed();
        // SAFETY: zeroes are a value of every field.
        let attributes = unsafe { attributes.assume_init_mut() };
        attributes.qp_type = sys::ibv_qp_type::IBV_QPT_RAW_PACKET;
        attributes.comp_mask = sys::ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_PD.0
            | sys::ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_IND_TABLE.0
            | sys::ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_RX_HASH.0;
        attributes.pd = self.raw.as_ptr();
        attributes.rwq_ind_tbl = table.raw.as_ptr();
        attributes.rx_hash_conf.rx_hash_function = 1;
        attributes.rx_hash_conf.rx_hash_key_len = u8::try_from(key.len()).map_err(io::Error::other)?;
        attributes.rx_hash_conf.rx_hash_key = key.as_mut_ptr();
        attributes.rx_hash_conf.rx_hash_fields_mask = fields;
        // SAFETY: domain and table live as long as the pair; the key is copied.
        let raw = unsafe {
            let context = self.raw.as_ref().context;
            calls(context)?.create_qp_ex.ok_or_else(unsupported)?(context, &raw mut *attributes)
        };
        made(raw).map(QueuePair::of_raw)
    }
}

impl WorkQueue<'_> {
    /// Its number, by which commands name it.
    #[must_use]
    pub fn number(&self) -> u32 {
        // SAFETY: the queue exists.
        unsafe { self.raw.as_ref() }.wq_num
    }

    /// Changes its state.
    ///
    /// # Errors
    /// As `ibv_modify_wq` fails.
    pub fn become_state(&self, state: WorkState) -> io::Result<()> {
        let mut attributes = sys::ibv_wq_attr {
            attr_mask: sys::ibv_wq_attr_mask::IBV_WQ_ATTR_STATE.0,
            wq_state: state as u32,
            curr_wq_state: 0,
            flags: 0,
            flags_mask: 0,
        };
        // SAFETY: the queue exists.
        let code = unsafe {
            calls(self.raw.as_ref().context)?.modify_wq.ok_or_else(unsupported)?(self.raw.as_ptr(), &raw mut attributes)
        };
        done(code)
    }

    /// Has a frame be received into memory, from a place on, of at most this length.
    ///
    /// # Errors
    /// As `ibv_post_wq_recv` fails.
    pub fn receive(&self, request: u64, region: &MemoryRegion<'_>, at: usize, bytes: u32) -> io::Result<()> {
        let mut piece = region.piece(at, bytes);
        let mut wanted = sys::ibv_recv_wr { wr_id: request, next: null_mut(), sg_list: &raw mut piece, num_sge: 1 };
        let mut bad = null_mut();
        // SAFETY: the queue exists; the request is copied, and its memory registered.
        done(unsafe { sys::ibv_post_wq_recv(self.raw.as_ptr(), &raw mut wanted, &raw mut bad) })
    }

    /// What destroying it fails with, while something uses it. If nothing does, the program ends.
    #[must_use]
    pub fn why_it_stays(&self) -> io::Error {
        self.destroy().err().unwrap_or_else(|| std::process::abort())
    }

    fn destroy(&self) -> io::Result<()> {
        // SAFETY: the queue exists. Whoever calls this uses it no more if it goes.
        done(unsafe { calls(self.raw.as_ref().context)?.destroy_wq.ok_or_else(unsupported)?(self.raw.as_ptr()) })
    }
}

impl Drop for WorkQueue<'_> {
    fn drop(&mut self) {
        // What leads to it borrows it, and is gone.
        let _ = self.destroy();
    }
}

/// A table of receive queues.
#[derive(Debug)]
pub struct WorkTable<'a> {
    raw: NonNull<sys::ibv_rwq_ind_table>,
    of: PhantomData<&'a Context>,
}

impl Context {
    /// A table of all queues that are given, a power of two.
    ///
    /// # Errors
    /// As `ibv_create_rwq_ind_table` fails.
    pub fn work_table<'a>(&'a self, queues: &[&'a WorkQueue<'_>]) -> io::Result<WorkTable<'a>> {
        let mut list: Vec<_> = queues.iter().map(|queue| queue.raw.as_ptr()).collect();
        let mut attributes = sys::ibv_rwq_ind_table_init_attr {
            log_ind_tbl_size: queues.len().ilog2(),
            ind_tbl: list.as_mut_ptr(),
            comp_mask: 0,
        };
        // SAFETY: the list has as many queues as are said, and they live as long as the table.
        let raw = unsafe {
            calls(self.raw())?.create_rwq_ind_table.ok_or_else(unsupported)?(self.raw(), &raw mut attributes)
        };
        made(raw).map(|raw| WorkTable { raw, of: PhantomData })
    }
}

impl Drop for WorkTable<'_> {
    fn drop(&mut self) {
        // SAFETY: what leads to it borrows it, and is gone.
        unsafe {
            if let Ok(sys::verbs_context { destroy_rwq_ind_table: Some(destroy), .. }) =
                calls(self.raw.as_ref().context)
            {
                destroy(self.raw.as_ptr());
            }
        }
    }
}
