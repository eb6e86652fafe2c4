//! libibverbs and libmlx5, loaded at run time.

use std::ffi::{c_char, c_int, c_void};
use std::rc::Rc;

use super::error::Unavailable;
use super::events::AsyncEvent;

/// What is known of a type of C by pointers only.
macro_rules! opaque {
    ($($name:ident)*) => { $(#[repr(C)] pub(super) struct $name { _private: [u8; 0] })* };
}
opaque!(RawDevice RawContext RawDomain RawTable RawMatcher RawRule RawAction RawObject);

/// `mlx5dv_devx_cmd_comp`
#[repr(C)]
pub(super) struct RawAnswers {
    pub(super) file: c_int,
}

/// `mlx5dv_context_attr`
#[repr(C)]
pub(super) struct ContextAttributes {
    pub(super) flags: u32,
    pub(super) comp_mask: u64,
}

/// `mlx5dv_dr_matcher_layout`
#[repr(C)]
pub(super) struct MatcherLayout {
    pub(super) flags: u32,
    pub(super) log_num_of_rules_hint: u32,
}

/// `mlx5dv_dr_action_dest_attr`, whose union holds one pointer.
#[repr(C)]
pub(super) struct DestinationAttributes {
    pub(super) kind: u32,
    pub(super) dest: *mut c_void,
}

/// `mlx5dv_dr_flow_sampler_attr`
#[repr(C)]
pub(super) struct SamplerAttributes {
    pub(super) sample_ratio: u32,
    pub(super) default_next_table: *mut RawTable,
    pub(super) num_sample_actions: u32,
    pub(super) sample_actions: *mut *mut RawAction,
    /// A rewrite behind the sampler, for devices of the first format only.
    pub(super) action: u64,
}

/// `mlx5dv_devx_umem`
#[repr(C)]
pub(super) struct RawUmem {
    pub(super) umem_id: u32,
}

/// `mlx5dv_port`
#[repr(C)]
#[derive(Default)]
pub(super) struct RawPort {
    pub(super) flags: u64,
    pub(super) vport: u16,
    vport_vhca_id: u16,
    esw_owner_vhca_id: u16,
    rsvd0: u16,
    vport_steering_icm_rx: u64,
    vport_steering_icm_tx: u64,
    reg_c0: [u32; 2],
}

/// `mlx5dv_devx_uar`
#[repr(C)]
pub(super) struct RawUar {
    pub(super) reg_addr: *mut c_void,
    base_addr: *mut c_void,
    pub(super) page_id: u32,
    mmap_off: i64,
    comp_mask: u64,
}

impl RawPort {
    pub(super) const VPORT: u32 = 1 << 0;
}

impl ContextAttributes {
    pub(super) const DEVX: u32 = 1 << 0;
}

impl MatcherLayout {
    pub(super) const NUM_RULE: u32 = 1 << 1;
}

impl DestinationAttributes {
    pub(super) const PLAIN: u32 = 0;
}

/// Functions of libraries, found by their names.
macro_rules! functions {
    ($($library:literal { $(fn $name:ident($($argument:ty),*) $(-> $result:ty)?;)* })*) => {
        /// The functions that are used.
        pub(super) struct Functions {
            $($(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*)*
        }

        impl Functions {
            /// Finds them, in libraries in the order of [`LIBRARIES`].
            fn find(libraries: &[libloading::Library; LIBRARIES.len()]) -> Result<Self, Unavailable> {
                Ok(Self {
                    $($($name: {
                        let library = LIBRARIES.iter().position(|name| *name == $library).unwrap_or_default();
                        // SAFETY: the type is that of the function in the library's header.
                        let found = unsafe { libraries[library].get(concat!(stringify!($name), "\0").as_bytes()) };
                        *found.map_err(|_| Unavailable::NoFunction { library: $library, function: stringify!($name) })?
                    },)*)*
                })
            }
        }

        /// Files of the libraries.
        const LIBRARIES: [&str; [$($library),*].len()] = [$($library),*];
    };
}

functions! {
    "libibverbs.so.1" {
        fn ibv_get_device_list(*mut c_int) -> *mut *mut RawDevice;
        fn ibv_free_device_list(*mut *mut RawDevice);
        fn ibv_get_device_name(*mut RawDevice) -> *const c_char;
        fn ibv_close_device(*mut RawContext) -> c_int;
        fn ibv_get_async_event(*mut RawContext, *mut AsyncEvent) -> c_int;
        fn ibv_ack_async_event(*mut AsyncEvent);
    }
    "libmlx5.so.1" {
        fn mlx5dv_is_supported(*mut RawDevice) -> bool;
        fn mlx5dv_open_device(*mut RawDevice, *mut ContextAttributes) -> *mut RawContext;
        fn _mlx5dv_query_port(*mut RawContext, u32, *mut RawPort, usize) -> c_int;
        fn mlx5dv_dr_domain_create(*mut RawContext, u32) -> *mut RawDomain;
        fn mlx5dv_dr_domain_destroy(*mut RawDomain) -> c_int;
        fn mlx5dv_dr_domain_sync(*mut RawDomain, u32) -> c_int;
        fn mlx5dv_dr_domain_allow_duplicate_rules(*mut RawDomain, bool);
        fn mlx5dv_dr_table_create(*mut RawDomain, u32) -> *mut RawTable;
        fn mlx5dv_dr_table_destroy(*mut RawTable) -> c_int;
        fn mlx5dv_dr_matcher_create(*mut RawTable, u16, u8, *mut u64) -> *mut RawMatcher;
        fn mlx5dv_dr_matcher_destroy(*mut RawMatcher) -> c_int;
        fn mlx5dv_dr_matcher_set_layout(*mut RawMatcher, *mut MatcherLayout) -> c_int;
        fn mlx5dv_dr_rule_create(*mut RawMatcher, *mut u64, usize, *mut *mut RawAction) -> *mut RawRule;
        fn mlx5dv_dr_rule_destroy(*mut RawRule) -> c_int;
        fn mlx5dv_dr_action_create_drop() -> *mut RawAction;
        fn mlx5dv_dr_action_create_default_miss() -> *mut RawAction;
        fn mlx5dv_dr_action_create_dest_table(*mut RawTable) -> *mut RawAction;
        fn mlx5dv_dr_action_create_dest_vport(*mut RawDomain, u32) -> *mut RawAction;
        fn mlx5dv_dr_action_create_dest_array(*mut RawDomain, usize, *mut *mut DestinationAttributes) -> *mut RawAction;
        fn mlx5dv_dr_action_create_flow_sampler(*mut SamplerAttributes) -> *mut RawAction;
        fn mlx5dv_dr_action_create_flow_counter(*mut RawObject, u32) -> *mut RawAction;
        fn mlx5dv_dr_action_create_pop_vlan() -> *mut RawAction;
        fn mlx5dv_dr_action_create_push_vlan(*mut RawDomain, u32) -> *mut RawAction;
        fn mlx5dv_dr_action_create_modify_header(*mut RawDomain, u32, usize, *mut u64) -> *mut RawAction;
        fn mlx5dv_dr_action_create_packet_reformat(*mut RawDomain, u32, u32, usize, *mut c_void) -> *mut RawAction;
        fn mlx5dv_dr_action_create_aso(*mut RawDomain, *mut RawObject, u32, u32, u8) -> *mut RawAction;
        fn mlx5dv_dr_action_destroy(*mut RawAction) -> c_int;
        fn mlx5dv_devx_obj_create(*mut RawContext, *const c_void, usize, *mut c_void, usize) -> *mut RawObject;
        fn mlx5dv_devx_obj_query(*mut RawObject, *const c_void, usize, *mut c_void, usize) -> c_int;
        fn mlx5dv_devx_obj_modify(*mut RawObject, *const c_void, usize, *mut c_void, usize) -> c_int;
        fn mlx5dv_devx_obj_destroy(*mut RawObject) -> c_int;
        fn mlx5dv_devx_create_cmd_comp(*mut RawContext) -> *mut RawAnswers;
        fn mlx5dv_devx_destroy_cmd_comp(*mut RawAnswers);
        fn mlx5dv_devx_obj_query_async(*mut RawObject, *const c_void, usize, usize, u64, *mut RawAnswers) -> c_int;
        fn mlx5dv_devx_general_cmd(*mut RawContext, *const c_void, usize, *mut c_void, usize) -> c_int;
        fn mlx5dv_devx_alloc_uar(*mut RawContext, u32) -> *mut RawUar;
        fn mlx5dv_devx_free_uar(*mut RawUar);
        fn mlx5dv_devx_query_eqn(*mut RawContext, u32, *mut u32) -> c_int;
        fn mlx5dv_devx_umem_reg(*mut RawContext, *mut c_void, usize, u32) -> *mut RawUmem;
        fn mlx5dv_devx_umem_dereg(*mut RawUmem) -> c_int;
    }
}

/// libibverbs and libmlx5 in this process.
pub struct Library {
    pub(super) functions: Functions,
    /// Where the functions are; never unloaded before them.
    _loaded: [libloading::Library; LIBRARIES.len()],
}

impl Library {
    /// Loads the installed libraries. Fails if one is missing, or is too old to have all that is used.
    pub fn load() -> Result<Rc<Self>, Unavailable> {
        let load = |library: &'static str| {
            // SAFETY: their constructors register providers of libibverbs, and need nothing of this process.
            let loaded = unsafe { libloading::Library::new(library) };
            loaded.map_err(|error| Unavailable::NoLibrary { library, reason: error.to_string() })
        };
        let [verbs, mlx5] = LIBRARIES;
        let loaded = [load(verbs)?, load(mlx5)?];
        Ok(Rc::new(Self { functions: Functions::find(&loaded)?, _loaded: loaded }))
    }
}
