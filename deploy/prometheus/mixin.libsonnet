// The kit as a mixin (monitoring.mixins.dev), for who builds configurations with jsonnet 0.18 or newer:
// (import 'mixin.libsonnet').prometheusAlerts, .prometheusRules and .grafanaDashboards.
{
  prometheusAlerts+:: std.parseYaml(importstr 'alerts/sluice.yml'),
  prometheusRules+:: std.parseYaml(importstr 'rules/sluice.yml'),
  grafanaDashboards+:: { 'sluice.json': import 'dashboards/sluice.json' },
}
