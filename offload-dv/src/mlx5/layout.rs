//! What is compared with the headers of the library.

use std::mem::{offset_of, size_of};

use super::action::{COMES_GREEN, Reformat};
use super::devx::LOCAL_WRITE;
use super::events::{AsyncEvent, ContextHead, DEVICE_FATAL};
use super::library::{
    ContextAttributes, DestinationAttributes, MatcherLayout, RawAnswers, RawPort, RawUar, RawUmem, SamplerAttributes,
};
use super::steering::{DomainKind, SYNC_HARDWARE, SYNC_SOFTWARE};

/// What C must agree with of types and constants that libmlx5 shares with us: the expression in C, and its value here. A test compiles them against the headers.
pub const LAYOUT: &[(&str, usize)] = &[
    ("sizeof(struct mlx5dv_context_attr)", size_of::<ContextAttributes>()),
    ("offsetof(struct mlx5dv_context_attr, comp_mask)", offset_of!(ContextAttributes, comp_mask)),
    ("MLX5DV_CONTEXT_FLAGS_DEVX", ContextAttributes::DEVX as usize),
    ("sizeof(struct mlx5dv_flow_match_parameters)", size_of::<usize>()),
    ("offsetof(struct mlx5dv_flow_match_parameters, match_buf)", size_of::<usize>()),
    ("sizeof(struct mlx5dv_dr_matcher_layout)", size_of::<MatcherLayout>()),
    (
        "offsetof(struct mlx5dv_dr_matcher_layout, log_num_of_rules_hint)",
        offset_of!(MatcherLayout, log_num_of_rules_hint),
    ),
    ("MLX5DV_DR_MATCHER_LAYOUT_NUM_RULE", MatcherLayout::NUM_RULE as usize),
    ("sizeof(struct mlx5dv_dr_action_dest_attr)", size_of::<DestinationAttributes>()),
    ("offsetof(struct mlx5dv_dr_action_dest_attr, dest)", offset_of!(DestinationAttributes, dest)),
    ("sizeof(struct mlx5dv_dr_flow_sampler_attr)", size_of::<SamplerAttributes>()),
    (
        "offsetof(struct mlx5dv_dr_flow_sampler_attr, default_next_table)",
        offset_of!(SamplerAttributes, default_next_table),
    ),
    (
        "offsetof(struct mlx5dv_dr_flow_sampler_attr, num_sample_actions)",
        offset_of!(SamplerAttributes, num_sample_actions),
    ),
    ("offsetof(struct mlx5dv_dr_flow_sampler_attr, sample_actions)", offset_of!(SamplerAttributes, sample_actions)),
    ("offsetof(struct mlx5dv_dr_flow_sampler_attr, action)", offset_of!(SamplerAttributes, action)),
    ("sizeof(struct mlx5dv_port)", size_of::<RawPort>()),
    ("offsetof(struct mlx5dv_port, vport)", offset_of!(RawPort, vport)),
    ("MLX5DV_QUERY_PORT_VPORT", RawPort::VPORT as usize),
    ("MLX5DV_DR_ACTION_DEST", DestinationAttributes::PLAIN as usize),
    ("sizeof(struct mlx5dv_devx_cmd_comp)", size_of::<RawAnswers>()),
    ("offsetof(struct mlx5dv_devx_async_cmd_hdr, out_data)", size_of::<u64>()),
    ("sizeof(struct mlx5dv_devx_uar)", size_of::<RawUar>()),
    ("offsetof(struct mlx5dv_devx_uar, reg_addr)", offset_of!(RawUar, reg_addr)),
    ("offsetof(struct mlx5dv_devx_uar, page_id)", offset_of!(RawUar, page_id)),
    ("MLX5DV_DR_ACTION_FLAGS_ASO_FLOW_METER_GREEN", COMES_GREEN as usize),
    ("sizeof(struct mlx5dv_devx_umem)", size_of::<RawUmem>()),
    ("MLX5DV_DR_DOMAIN_TYPE_NIC_RX", DomainKind::NicReceive as usize),
    ("MLX5DV_DR_DOMAIN_TYPE_NIC_TX", DomainKind::NicTransmit as usize),
    ("MLX5DV_DR_DOMAIN_TYPE_FDB", DomainKind::Fdb as usize),
    ("MLX5DV_DR_DOMAIN_SYNC_FLAGS_SW", SYNC_SOFTWARE as usize),
    ("MLX5DV_DR_DOMAIN_SYNC_FLAGS_HW", SYNC_HARDWARE as usize),
    ("MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TUNNEL_TO_L2", Reformat::L2TunnelToL2 as usize),
    ("MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TO_L2_TUNNEL", Reformat::L2ToL2Tunnel as usize),
    ("MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L3_TUNNEL_TO_L2", Reformat::L3TunnelToL2 as usize),
    ("MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TO_L3_TUNNEL", Reformat::L2ToL3Tunnel as usize),
    ("offsetof(struct ibv_context, async_fd)", offset_of!(ContextHead, async_file)),
    ("sizeof(struct ibv_async_event)", size_of::<AsyncEvent>()),
    ("offsetof(struct ibv_async_event, event_type)", offset_of!(AsyncEvent, kind)),
    ("IBV_EVENT_DEVICE_FATAL", DEVICE_FATAL as usize),
    ("IBV_ACCESS_LOCAL_WRITE", LOCAL_WRITE as usize),
];
