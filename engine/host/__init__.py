"""The host: CPU cores and the slots that share them, and the versions of installed components."""

from typing import TYPE_CHECKING

from tecoinfer_modelzoo.lazy import lazily

if TYPE_CHECKING:
    from engine.host.cores import (
        host_slots as host_slots,
        processor_name as processor_name,
        usable_cores as usable_cores,
    )
    from engine.host.installed import (
        component_version as component_version,
        components as components,
        variables as variables,
        version_line as version_line,
    )

_HOMES = {
    "engine.host.installed": "component_version components variables version_line",
    "engine.host.cores": "host_slots processor_name usable_cores",
}
__getattr__, __dir__ = lazily(__name__, _HOMES)
