//! Makes Rust of the `.proto` files, without protoc.

use std::error::Error;
use std::fs;
use std::path::PathBuf;

use prost::Message;
use tonic_prost_build::FileDescriptorSet;

const FILES: [&str; 6] = [
    "google/rpc/error_details.proto",
    "openoffload/v2/openoffload.proto",
    "sluice/v1/agent.proto",
    "sluice/v1/flow.proto",
    "sluice/v1/flows.proto",
    "sluice/v1/objects.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let descriptors: FileDescriptorSet = protox::compile(FILES, ["proto"])?;
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    // Values of fields stay where the message was received.
    tonic_prost_build::configure()
        .build_transport(false)
        .codec_path("crate::codec::WholeCodec")
        .extern_path(".sluice.v1.ApplyRequest", "crate::requests::ApplyRequest")
        .extern_path(".sluice.v1.ReplaceRequest", "crate::requests::ReplaceRequest")
        .bytes(".sluice.v1.MatchField")
        .extern_path(".sluice.v1.Acceptances", "crate::Acceptances")
        .extern_path(".sluice.v1.DumpResponse", "crate::DumpResponse")
        .extern_path(".sluice.v1.Match", "crate::matching::Match")
        .compile_fds(descriptors)?;
    Ok(())
}
