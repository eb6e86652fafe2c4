mod actions;
mod device;
mod noise;
mod refusals;
mod walks;
