"""Resolves one service: recipe, memory, flags, image and models, and holds the rules to it."""

from __future__ import annotations

from sparkfleet.spec.catalog import Catalog
from sparkfleet.spec.errors import SpecError
from sparkfleet.spec.finding import Finding
from sparkfleet.spec.flags import effective_env, effective_flags
from sparkfleet.spec.hardware import HardwareProfile
from sparkfleet.spec.image import IMAGE_FLOORS
from sparkfleet.spec.inventory import HostSpec, ServiceSpec
from sparkfleet.spec.judge import Broken, ModelDate, Scene, judge
from sparkfleet.spec.lock import Lock, lock_key
from sparkfleet.spec.memory import MemoryPlan, floor_hundredth, of_reserve
from sparkfleet.spec.own_rules import OWN_RULES, own_faults
from sparkfleet.spec.pins import (
    commit_day,
    pinned_image,
    planned_models,
    proven_as,
    wanted_image,
)
from sparkfleet.spec.plan import ServicePlan
from sparkfleet.spec.recipe import Recipe
from sparkfleet.spec.variants import with_variant
from sparkfleet.spec.wording import near


class ServiceResolver:
    """Resolves one service; a class only to say host and key in every error alike."""

    def __init__(
        self,
        host: HostSpec,
        name: str,
        spec: ServiceSpec,
        hardware: HardwareProfile,
        catalog: Catalog,
        lock: Lock | None,
    ) -> None:
        self.host, self.name, self.spec, self.hardware = host, name, spec, hardware
        self.catalog, self.lock = catalog, lock
        self.findings: list[Finding] = []

    def error(self, key: str, sentence: str) -> SpecError:
        """A SpecError that begins with host and service."""
        return SpecError(
            f"Host {self.host.name}, service {self.name}: {sentence}", host=self.host.name, key=key
        )

    def plan(self, taken: set[str]) -> ServicePlan:
        """The service's plan. `taken`: container names that the host uses already."""
        recipe = self._recipe()
        spec, hardware = self.spec, self.hardware
        memory = self._memory(recipe)
        self._known_fallbacks(recipe)
        try:
            image = wanted_image(recipe, hardware, spec.image)
            version = proven_as(recipe, image)
            flags = effective_flags(recipe, spec, memory.utilization, version)
            env = effective_env(recipe, spec, flags, memory.utilization, version)
        except SpecError as error:
            raise self.error(error.key or "image", str(error)) from None
        base = spec.recipe if spec.variant is None else f"{spec.recipe}+{spec.variant}"
        key = lock_key(base, spec.image)
        locked = self.lock.recipes.get(key) if self.lock else None
        if spec.entrypoint is not None:
            changed = recipe.image.model_copy(update={"entrypoint": spec.entrypoint})
            recipe = recipe.model_copy(update={"image": changed})
        scene = Scene(
            flags=flags,
            env=env,
            image=image,
            entrypoint=recipe.image.entrypoint,
            utilization=memory.utilization,
            models={
                role: ModelDate(
                    commit_day(locked, role, model.repo),
                    model.not_before,
                    pinned=locked is not None and role in locked.models,
                )
                for role, model in recipe.models.items()
            },
        )
        lifted = self._judge(recipe, scene)
        logs = recipe.logs.model_copy(
            update={
                kind: tuple(line for line in getattr(recipe.logs, kind) if line.rule not in lifted)
                for kind in ("forbidden", "required")
            }
        )
        container = recipe.container
        return ServicePlan(
            host=self.host.name,
            name=self.name,
            spec=spec,
            recipe=recipe,
            root=self.host.root,
            utilization=memory.utilization,
            memory=memory,
            flags=flags,
            env=env,
            image=pinned_image(image, locked),
            models=planned_models(recipe, locked, self.host.models_dir),
            container=container if container not in taken else f"{container}-{self.name}",
            port=spec.port,
            bind=spec.bind,
            auth=spec.auth,
            logs=logs,
            notes=self._notes(recipe),
            lock_key=key,
        )

    def _recipe(self) -> Recipe:
        recipe = self.catalog.recipes.get(self.spec.recipe)
        if recipe is None:
            raise self.error(
                "recipe",
                f"recipe is {self.spec.recipe}, which no file in recipes/ defines; known are "
                f"{', '.join(self.catalog.names) or 'none'}."
                f"{near(self.spec.recipe, self.catalog.names)}",
            )
        if not set(recipe.hardware) & set(self.hardware.lineage):
            raise self.error(
                "hardware",
                f"recipe {recipe.name} is published for {', '.join(recipe.hardware)}, and the "
                f"host's hardware is {self.hardware.name}. Choose another recipe.",
            )
        if self.spec.auth not in recipe.auth:
            raise self.error(
                "auth",
                f"auth is {self.spec.auth}, and recipe {recipe.name} can do only "
                f"{', '.join(recipe.auth)}; write auth: {recipe.auth[0]} if that is acceptable.",
            )
        try:
            return with_variant(recipe, self.spec.variant)
        except SpecError as error:
            raise self.error("variant", str(error)) from None

    def _memory(self, recipe: Recipe) -> MemoryPlan:
        spec, total = self.spec, self.hardware.memory_gib
        if spec.utilization is not None:
            value, origin, key = floor_hundredth(spec.utilization), "utilization", "utilization"
        elif spec.reserve_gib is not None:
            value = of_reserve(spec.reserve_gib, total)
            origin, key = f"reserve_gib {spec.reserve_gib:g}", "reserve_gib"
        else:
            preset = spec.preset or "alone"
            if preset not in recipe.presets:
                raise self.error(
                    "preset",
                    f"preset is {preset}, and recipe {recipe.name} has "
                    f"{', '.join(recipe.presets)}.{near(preset, recipe.presets)}",
                )
            value = floor_hundredth(recipe.preset(preset).utilization)
            origin, key = f"preset {preset}", "preset"
        if value <= 0:
            raise self.error(
                key,
                f"{origin} leaves nothing of {total:.1f} GiB to the engine "
                f"(utilization {value:.2f}); choose a smaller reserve or a larger utilization.",
            )
        return MemoryPlan(total, value, origin)

    def _known_fallbacks(self, recipe: Recipe) -> None:
        for name in self.spec.fallbacks:
            if name not in recipe.fallbacks:
                raise self.error(
                    "fallbacks",
                    f"fallbacks names {name}, and recipe {recipe.name} has "
                    f"{', '.join(recipe.fallbacks) or 'none'}.{near(name, recipe.fallbacks)}",
                )

    def _judge(self, recipe: Recipe, scene: Scene) -> set[str]:
        """Raise for broken rules; returns the rules that are overridden or lifted."""
        rules = (*recipe.rules, *self.catalog.common_rules)
        known = {rule.name for rule in rules} | OWN_RULES.keys()
        for name in self.spec.overrides:
            if name not in known:
                raise self.error(
                    f"overrides.{name}",
                    f"overrides names {name}, and recipe {recipe.name} has no such rule."
                    f"{near(name, known)}",
                )
        lifted = {name for key in self.spec.fallbacks for name in recipe.fallbacks[key].lifts}
        passed = lifted | self.spec.overrides.keys()
        broken = [
            *judge(rules, scene),
            *own_faults(recipe, self.hardware, scene, self.spec.overrides),
        ]
        fatal = [b for b in broken if b.level == "fail" and b.rule.name not in passed]
        if fatal:
            raise SpecError.gather(
                self.error(
                    _key_of(found),
                    f"{found.sentence} To break it all the same, give a reason: overrides: "
                    f'{{"{found.rule.name}": "…"}}.',
                )
                for found in fatal
            )
        for found in broken:
            if found.level != "fail":
                self._say(found.level, found.rule.name, found.sentence)
        needed = {found.rule.name for found in broken}
        if recipe.image.floors:
            needed.add(IMAGE_FLOORS)  # what the image holds is known on the host only
        for name, reason in self.spec.overrides.items():
            idle = "" if name in needed else " (The rule holds without it; the override can go.)"
            self._say("warn", name, f"Rule {name} is overridden: {reason}{idle}")
        if self.spec.auth == "none" and not self.spec.bind.startswith(("127.", "::1")):
            self._say(
                "warn", "open", f"The API listens on {self.spec.bind} without a key (auth: none)."
            )
        return passed

    def _say(self, level: str, check: str, what: str) -> None:
        self.findings.append(
            Finding(
                level="unknown" if level == "unknown" else "warn",
                host=self.host.name,
                check=check,
                what=f"Service {self.name}: {what}",
            )
        )

    def _notes(self, recipe: Recipe) -> tuple[str, ...]:
        return (
            *(f"variant {name}" for name in [self.spec.variant] if name),
            *(
                f"fallback {key}, {row.cost}: {row.reason}"
                for key, row in recipe.fallbacks.items()
                if key in self.spec.fallbacks
            ),
            *(f"override {name}: {reason}" for name, reason in self.spec.overrides.items()),
        )


def _key_of(found: Broken) -> str:
    """The inventory key that broke the rule, as far as the subject tells."""
    kind, _, name = found.rule.subject.partition(":")
    return {"flag": f"flags.{name.partition('.')[0]}", "env": f"env.{name}"}.get(kind, kind)
