//! The text grammar of the OVS datapath: flows in, flows out.
