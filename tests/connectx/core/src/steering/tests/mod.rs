mod actions;
mod device;
mod meters;
mod noise;
mod refusals;
mod samplers;
mod walks;
