"""The simulated Tecorigin T1 card: its description, lowering, storage, kernels, cost, clock and saved engines."""

from typing import TYPE_CHECKING

from tecoinfer_modelzoo.lazy import lazily

if TYPE_CHECKING:
    from engine.batching.settle import settled as settled
    from engine.built import SUFFIX as SUFFIX, is_built as is_built
    from engine.onnx.widen import widen as widen
    from engine.sdaa.card import (
        CARD_VARIABLE as CARD_VARIABLE,
        CARDS as CARDS,
        CardDescription as CardDescription,
        Layout as Layout,
        all_visible_devices as all_visible_devices,
        load_card as load_card,
        spa_count as spa_count,
        visible_devices as visible_devices,
    )
    from engine.sdaa.cost import (
        ShardCost as ShardCost,
        ShardWork as ShardWork,
        kernel_seconds as kernel_seconds,
        price as price,
        shard_cost as shard_cost,
        shard_work as shard_work,
    )
    from engine.sdaa.device import CallTimes as CallTimes
    from engine.sdaa.engine import SdaaEngine as SdaaEngine
    from engine.sdaa.faults import (
        FAULTS_VARIABLE as FAULTS_VARIABLE,
        Fault as Fault,
        check_spas as check_spas,
        faults_from_environment as faults_from_environment,
    )
    from engine.sdaa.float16 import (
        float16_storage as float16_storage,
        float32_inputs as float32_inputs,
        inlined as inlined,
        keeping_exact as keeping_exact,
        resolved as resolved,
        round_half as round_half,
        scalar_constants as scalar_constants,
    )
    from engine.sdaa.kernels import (
        ACTIVATIONS as ACTIVATIONS,
        HEAVY as HEAVY,
        SELECTING as SELECTING,
        Kernel as Kernel,
        inner_tensors as inner_tensors,
        kernels_of as kernels_of,
    )
    from engine.sdaa.lower import Lowered as Lowered, lowered as lowered
    from engine.sdaa.saved import (
        lowering_versions as lowering_versions,
        read_saved as read_saved,
        saved_path as saved_path,
    )
    from engine.sdaa.status import DeviceStatus as DeviceStatus, Publisher as Publisher

_HOMES = {
    "engine.built": "SUFFIX is_built",
    "engine.onnx.widen": "widen",
    "engine.sdaa.card": (
        "CARDS CARD_VARIABLE CardDescription Layout all_visible_devices load_card spa_count visible_devices"
    ),
    "engine.sdaa.cost": "ShardCost ShardWork kernel_seconds price shard_cost shard_work",
    "engine.sdaa.device": "CallTimes",
    "engine.sdaa.engine": "SdaaEngine",
    "engine.sdaa.faults": "FAULTS_VARIABLE Fault check_spas faults_from_environment",
    "engine.sdaa.float16": "float16_storage float32_inputs inlined keeping_exact resolved round_half scalar_constants",
    "engine.sdaa.kernels": "ACTIVATIONS HEAVY SELECTING Kernel inner_tensors kernels_of",
    "engine.batching.settle": "settled",
    "engine.sdaa.status": "DeviceStatus Publisher",
    "engine.sdaa.lower": "Lowered lowered",
    "engine.sdaa.saved": "lowering_versions read_saved saved_path",
}
__getattr__, __dir__ = lazily(__name__, _HOMES)
